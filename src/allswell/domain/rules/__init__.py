"""How a command becomes a decision: commands, their bounds, the rules that decide them, and the events they lead to."""
