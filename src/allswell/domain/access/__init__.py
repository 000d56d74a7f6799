"""Who may do what: rights, keys, and sessions of browsers."""
