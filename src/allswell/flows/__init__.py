"""Flows: a YAML file with the steps of a run: read strictly, checked, drawn; `run` carries one out."""
