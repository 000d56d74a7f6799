"""What touches the world: scopes with limits, threads and processes that can be given up, deadlines that travel."""
