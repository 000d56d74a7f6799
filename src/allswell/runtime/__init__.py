"""What touches the world: process trees, git, attempts of agents, guards, threads, and deadlines that travel."""
