"""The plugin for coding agents of the user's own: what it does at their events, and how it is installed."""
