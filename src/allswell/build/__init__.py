"""Builds: reading a spec, and what a coordinator, a builder and an auditor do with the lines they hear."""
