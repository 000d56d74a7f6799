"""From the README to a merged branch, with the real Claude Code: `make clients` runs this, and the picture shows it."""

import html
import re
from pathlib import Path

import pytest

from tests.clients.first_merge import commands, played
from tests.runtime.attempt.stage import git

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "first-merge.svg"


def test_the_picture_in_the_readme_shows_the_commands_that_stand_there() -> None:
    """`python docs/record.py first-merge` takes it anew, with ALLSWELL_CLIENTS."""
    shown = html.unescape(re.sub(r"<[^>]*>", "", PICTURE.read_text(encoding="utf-8"))).replace("\xa0", " ")
    typed = commands()
    assert 0 < len(typed) < 10
    for command in typed:
        assert f"$ {command.removesuffix('…')}" in shown
    assert shown.count("all tests pass") == 1


@pytest.mark.slow
def test_a_new_user_types_what_the_readme_has_and_has_a_merged_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    user, shown = played(tmp_path)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "The tests pass: words() splits at any white space now." in " ".join(plain.split()), plain
    assert plain.rstrip().endswith("all tests pass"), plain
    assert "Traceback" not in plain
    assert "split()" in (user.repository / "parser.py").read_text()
    assert git("branch", "--show-current", cwd=user.repository).strip() == "main"
