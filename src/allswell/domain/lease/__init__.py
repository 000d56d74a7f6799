"""A lease: one holder's time-limited right to one attempt at a task, and all that ends it."""
