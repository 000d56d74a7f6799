"""Stand-ins for coding agents: programs called `claude` and `codex` that print what the real ones have printed.

The streams in `captured/` are those of Claude Code 2.1.197 (`-p --output-format stream-json --verbose`; with refused
calls 2.1.326) and Codex 0.166.0 (`exec --json`; with a provider that refuses 0.169.0) against the fake provider,
shortened. `make clients` runs the real ones.
"""
