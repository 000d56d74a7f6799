"""Loads rows, asks the core, writes rows back: in batches, with sweepers, followers and views."""
