"""A watch for callers from elsewhere: keys, sessions, what each may see and do."""
