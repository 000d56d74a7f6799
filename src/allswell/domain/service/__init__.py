"""Calls to services: circuit breakers, retries, classes of errors, and the policy of a guard."""
