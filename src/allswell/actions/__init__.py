"""What can be done, once: a door parses what its caller says, a verb here does it, and the door prints the answer."""
