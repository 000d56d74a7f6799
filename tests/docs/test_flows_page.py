"""docs/flows.md: its flow is right, and it tells of every key, every exit code and every choice."""

import re
from pathlib import Path

from allswell.domain.receipts.step import CutOffChoice
from allswell.flows.reader import STEP_KEYS, TOP_KEYS
from allswell.flows.schema import load_flow
from allswell.settings import look

PAGE = (Path(__file__).parents[2] / "docs" / "flows.md").read_text(encoding="utf-8")


def test_the_flow_on_the_page_can_be_run_and_announces_its_override(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    flow, found = load_flow(text, "flow.yaml", look(tmp_path, environ={}))
    assert flow.name == "release"
    assert "override" in {one.rule for one in found}
    assert {one.severity.value for one in found} == {"note"}, "its own check finds nothing wrong with it"


def test_every_key_and_every_choice_is_told() -> None:
    told = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert [key for key in (*TOP_KEYS, *STEP_KEYS, *CutOffChoice) if key not in told] == []
