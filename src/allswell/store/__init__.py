"""Where rows live: one port, three stores behind it (memory, SQLite, PostgreSQL)."""
