"""A run: tasks with one common deadline and purpose; and Python flows, which hold their run while they work."""
