"""The table of docs/agents.md has a word about every client in every scene."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.clients import table
from tests.clients.roster import ROSTER
from tests.clients.table import BEGIN, END, PAGE, SCENES, TITLES, missing, written

SEEN = {(client, scene): {"version": "1.0", "text": "done"} for client in TITLES for scene in SCENES}


def page(text: str) -> str:
    return f"# A page\n\n{BEGIN}\n{text}\n{END}\n"


def test_no_cell_of_the_page_is_empty() -> None:
    assert missing(PAGE.read_text()) == []


def test_the_clients_and_scenes_of_the_table_are_those_that_are_run() -> None:
    assert {client.name: client.title for client in ROSTER} == TITLES
    files = Path(__file__).parent.glob("test_scene_*.py")
    run = {name for file in files for name in re.findall(r'fleet\.cell\(\s*"([^"]+)"', file.read_text())}
    assert run == set(SCENES)


def test_what_is_not_there_is_missed() -> None:
    assert missing(page(written(SEEN, "2026-11-19"))) == []
    assert missing(page("")) == ["the table"]
    lost = {place: cell for place, cell in SEEN.items() if place != ("codex", "429")}
    assert missing(page(written(lost, "2026-11-19"))) == ["429: Codex 1.0"]
    short = written(SEEN, "2026-11-19").replace("| **fenced**", "| **other**").replace("Gemini", "Nobody")
    assert missing(page(short)) == ["Gemini", "fenced"]


def test_a_table_with_a_hole_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "agents.md").write_text(page("before"))
    monkeypatch.setattr(table, "PAGE", file)
    monkeypatch.setattr("sys.argv", ["table", str(tmp_path)])
    assert table.main() == 1
    assert "before" in file.read_text()


def test_a_text_with_a_bar_stays_in_its_cell() -> None:
    odd = {**SEEN, ("codex", "429"): {"version": "1.0", "text": "a | b"}}
    assert missing(page(written(odd, "2026-11-19"))) == []
