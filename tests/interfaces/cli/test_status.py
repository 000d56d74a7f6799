"""`allswell` alone: that all is well, or what needs you first."""

import json
from pathlib import Path

import pytest

from tests.interfaces.cli.scene import has_all, told, typed

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store with a story in it, which nobody changes."""
    return told(tmp_path_factory.mktemp("story") / "watch.db")


def test_what_needs_you_comes_first_with_what_to_type(story: str, capsys: Capture) -> None:
    code, said, _ = typed(capsys, "--store", story)
    assert code == 1, "what is broken wins over what needs a human"
    has_all(
        said,
        [
            "2 things are broken, 3 things need you.",
            "✗ Something was due",
            "no process enforces time limits",
            "✗ 11 tasks ready for",
            "? You were asked",
            "? ivy asked you",
            "✗ “read the specs” failed",
            "· “anthropic” asked to wait.",
            "1 held 12 ready 4 waiting 2 done 1 failed 1 skipped",
        ],
    )


def test_json_says_the_same(story: str, capsys: Capture) -> None:
    code, said, _ = typed(capsys, "--json", "--store", story)
    data = json.loads(said)
    assert code == 1
    assert (data["well"], data["verdict"]) == (False, "broken")
    assert [need["kind"] for need in data["needs"]] == ["overdue", "unclaimed", "question", "question", "failed"]
    assert [need["kind"] for need in data["waiting"]] == ["parked"]
    assert data["counts"]["held"] == 1


def test_all_is_well_when_nothing_needs_anybody(tmp_path: Path, capsys: Capture) -> None:
    store = f"sqlite:///{tmp_path / 'watch.db'}"
    assert typed(capsys, "submit", "write the changelog", "--store", store)[0] == 0
    code, said, _ = typed(capsys, "--store", store)
    assert code == 0
    has_all(said, ["All's well. · 1 task ready for 0s, and no known agent can take it", "1 ready"])


def test_without_a_store_one_is_told_how_to_begin(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "none.db"
    code, said, _ = typed(capsys, "--store", f"sqlite:///{path}")
    assert code == 0
    has_all(
        said,
        [
            "Nothing here yet: no command was run and no task was submitted.",
            "Put it in front of any command:",
            'allswell submit "write the changelog"',
            "allswell demo",
        ],
    )
    assert not path.exists(), "looking makes nothing"


def test_a_flag_before_the_command_is_not_silently_ignored(capsys: Capture) -> None:
    code, _, complained = typed(capsys, "--store", "memory:", "tasks")
    assert code == 2
    assert "must stand after the command" in complained
