"""docs/worker.md draws the layers as they are in force, and its handler really handles."""

import re
from pathlib import Path

from allswell.domain.worker.limits import HEALTH, HealthRules, Layers

PAGE = (Path(__file__).parents[2] / "docs" / "worker.md").read_text(encoding="utf-8")


def _drawing(layers: Layers, health: HealthRules) -> str:
    """The five layers as one drawing, with the limits in force."""
    critical = (
        f"{health.critical_stuck} stuck or {health.critical_exhausted} waits in vain in {health.window // 1_000} s"
    )
    visibility, stuck = f"{layers.visibility_timeout} s", f"{layers.stuck_after:g} s"
    rows = [
        (
            "1 statement",
            f"{layers.statement_timeout:,} ms",
            "PostgreSQL ends the statement; the message is tried again",
        ),
        (
            "2 connection",
            f"{layers.pool_timeout:g} s",
            "no connection is free: counted, and no message is read meanwhile",
        ),
        ("3 visibility", visibility, "the message shows again; who had it can commit nothing any more"),
        ("4 handler", stuck, "stuck: stack logged, connection cut, a new thread takes its place"),
        ("5 worker", critical, "restarted in its process; then the process itself"),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    edge = "─" * (sum(widths) + 8)
    lines = [f"│ {name:<{widths[0]}}   {limit:>{widths[1]}}   {then:<{widths[2]}} │" for name, limit, then in rows]
    return "\n".join([f"┌{edge}┐", *lines, f"└{edge}┘"])


def test_the_page_draws_the_layers_from_the_settings() -> None:
    (drawn,) = re.findall(r"^```text\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
    assert drawn == _drawing(Layers(), HEALTH)


def test_the_page_names_every_figure_of_health() -> None:
    for word in ("healthy", "degraded", "critical", "Transient", "Permanent", "BusinessFailure", "TIMEOUT"):
        assert word in PAGE
