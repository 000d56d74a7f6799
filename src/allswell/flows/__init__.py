"""Flows: the YAML spec of a run's steps; so far how it is read strictly and how its arithmetic is checked."""
