"""Agents: what they print, what counts as progress, what they cost, and how a fleet is written down."""
