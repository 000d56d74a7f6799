"""Messages of a queue: limits, retries and quarantine."""
