"""docs/check.md shows what the command really says, and knows every rule."""

import re
from pathlib import Path

from allswell.flows.loader import BAD_FLOW, INCOMPLETE, LEADS_OUT
from allswell.settings.check import BAD_SETTING
from tests.interfaces.cli.upkeep import run
from tests.support.check_rules import RULES

PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")


def test_the_example_says_what_the_page_shows(tmp_path: Path) -> None:
    (flow,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "flow.yaml").write_text(flow, encoding="utf-8")
    ran = run("check", "flow.yaml", cwd=tmp_path)
    assert ran.code == 1
    assert shown in ran.out


def test_every_rule_is_on_the_page_with_its_severity_and_its_sentence() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| ([a-z]+) \| (.*?)(?: \(.*\))? \|$", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(
        (rule.id, rule.severity.value, rule.holds) for rule in (*RULES, BAD_FLOW, INCOMPLETE, LEADS_OUT, BAD_SETTING)
    )
