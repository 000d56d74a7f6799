"""`make demo`: a small fleet of real processes, one night, and what became of every task."""
