"""`allswell watch` with Textual (the extra `allswell[watch]`): choose something, read about it, and act on it.

It reads through the watch and acts through the watch, as commands do; it decides nothing. Whatever an agent said is
shown as data: no markup, no control characters.
"""
