"""Explaining: a read model that turns rows into sentences a tired person understands at three in the morning.

It decides nothing and changes nothing. `gather` reads the rows that matter, a bounded number of them; everything else
is a pure function of those rows, so it can be tested with any rows at all.

  facts        the rows behind one explanation
  why          the answer to "why?": from a task down to what really holds it up
  task         one task, as it stands: what is so, what comes next, what a person could do
  services     a service that is shut, in words
  timeline     how the time was spent, and what ended each attempt
  verdict      the whole watch: what is broken, what needs a human, what merely waits
  doctor       the verdict as a list of checks
  overview     the front page and the board; live is the list behind `allswell watch`
  agents       who does what, and how they are
  journal      events from the newest backwards
  event_text   one event as a sentence
  explanation  the shape of an explanation, and its words
"""
