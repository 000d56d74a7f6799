"""How hard the properties are tried: the same examples every time, a few seconds for each."""

from hypothesis import HealthCheck, settings

DETERMINISTIC = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow],
)
