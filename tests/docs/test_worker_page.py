"""docs/worker.md draws the layers as they are in force, and its handler really handles."""

import re
from pathlib import Path

from allswell.domain.worker.limits import HEALTH, Layers, drawing

PAGE = (Path(__file__).parents[2] / "docs" / "worker.md").read_text(encoding="utf-8")


def test_the_page_draws_the_layers_from_the_settings() -> None:
    (drawn,) = re.findall(r"^```text\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
    assert drawn == drawing(Layers(), HEALTH)


def test_the_page_names_every_figure_of_health() -> None:
    for word in ("healthy", "degraded", "critical", "Transient", "Permanent", "BusinessFailure", "TIMEOUT"):
        assert word in PAGE
