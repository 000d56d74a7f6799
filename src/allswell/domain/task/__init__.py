"""A task: its rows and states, what is wrong with a submission, and what follows from its end for others."""
