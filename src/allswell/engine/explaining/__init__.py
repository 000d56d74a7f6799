"""Explaining: a read model that turns rows into sentences a tired person understands at three in the morning.

It decides nothing and changes nothing. `gather` reads the rows that matter, a bounded number of them; everything else
is a pure function of those rows, so it can be tested with any rows at all.

  facts      the rows behind one explanation
  standing   one task, as it stands: what is so, what comes next, what a person could do
  chain      from a task down to what really holds it up
  past       how the time was spent, and what ended each attempt
  overview   the state of the whole watch: what needs you first
  telling    one event as a sentence
"""
