"""Stand-ins for coding agents: programs called `claude` and `codex` that print what the real ones have printed.

The streams in `captured/` are those of Claude Code 2.1.197 (`-p --output-format stream-json --verbose`; with refused
calls 2.1.326) and Codex 0.166.0 (`exec --json`; with a provider that refuses 0.169.0) against the fake provider,
shortened. What opencode 1.18.33 (`run --format json`) and Gemini 0.61.0 (`--output-format stream-json`) have printed
stands there, too, and what claude-agent-acp 0.100.0 and codex-acp 2.6.0 have said to our client and it to them
(wire.py). `make clients` runs the real ones.
"""
