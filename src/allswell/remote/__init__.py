"""A watch that lives elsewhere: the same commands and looks, over HTTP, with a key (ADR 57)."""
