"""The page about what is and what is not kept apart names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_each_rule_of_the_threat_model_names_its_test() -> None:
    page = (_ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    rules = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| cannot")]
    assert len(rules) >= 10
    for rule in rules:
        named = re.findall(r"`((?:tests/[a-z/]+/)?test_[a-z_]+\.py)`", rule)
        assert named, rule
        for test in named:
            assert (_ROOT / test).exists() or (_ROOT / "tests" / "security" / test).exists(), test
