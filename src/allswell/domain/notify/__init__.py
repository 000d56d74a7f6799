"""Telling the outside: sinks and hooks as they are written down, deliveries, alerts, and metrics."""
