"""The page about what is and what is not kept apart names, for each claim, tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_TEST = re.compile(r"`(tests/[a-z_/]+/test_[a-z_]+\.py)::(test_\w+)`")


def test_each_claim_of_the_threat_model_names_tests_that_there_are() -> None:
    page = (_ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    claims = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| cannot")]
    assert len(claims) >= 60
    for claim in claims:
        proof = claim.strip("|").split(" | ")[-1].strip()
        named = _TEST.findall(proof)
        assert named, claim
        assert ", ".join(f"`{path}::{name}`" for path, name in named) == proof, claim
        for path, name in named:
            assert re.search(rf"^def {name}\(", (_ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (path, name)
