"""Writes the table of docs/agents.md of what the scenes with real clients have left: `python -m tests.clients.table`.

`make clients` calls it once all scenes of one run are over. A cell is what its scene has seen Allswell do, or the
reason that stands here why there is no such scene; with a cell missing, nothing is written. What the run has seen is
kept beside this (`table.json`), and a test compares the page with it: the table is not edited by hand.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

KEPT = Path(__file__).with_name("table.json")
PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
BEGIN, END = "<!-- begin: make clients -->", "<!-- end -->"
SCENES = {
    "finishes": "finishes",
    "hangs in model": "hangs in its model",
    "hangs in tool": "hangs in a tool",
    "repeats itself": "repeats itself",
    "401": "401",
    "429": "429",
    "usage limit": "usage limit",
    "denied": "is denied a call",
    "asks": "asks",
    "warm": "killed, and tried again",
    "undone": "done without doing",
    "capped": "capped",
    "fenced": "fenced",
}
"""The rows: a scene as its test names it, and as readers do."""
TITLES = {
    "claude": "Claude Code",
    "codex": "Codex",
    "claude-agent-acp": "claude-agent-acp",
    "codex-acp": "codex-acp",
    "opencode": "opencode",
    "gemini": "Gemini",
}
REASONS: Mapping[tuple[str, str], str] = {}
"""Why there is no scene, by client and scene."""


class Seen(msgspec.Struct, frozen=True):
    """What one run has seen."""

    day: str
    node: str
    processors: int
    versions: dict[str, str]
    """By client."""
    cells: dict[str, dict[str, str]]
    """By scene and client."""


def seen_in(folder: Path) -> Seen:
    """What the scenes of a run have left."""
    versions: dict[str, str] = {}
    cells: dict[str, dict[str, str]] = {scene: {} for scene in SCENES}
    for path in sorted(folder.glob("*.json")):
        cell = json.loads(path.read_text())
        versions[cell["client"]] = cell["version"]
        cells[cell["scene"]][cell["client"]] = cell["text"]
    about = next((folder.parent / "node_modules").glob("node-linux-*/package.json"), None)
    node = "" if about is None else json.loads(about.read_text())["version"]
    return Seen(dt.datetime.now(dt.UTC).date().isoformat(), node, os.cpu_count() or 1, versions, cells)


def written(seen: Seen) -> str:
    """The table, scene by scene."""
    heads = [f"{title} {seen.versions.get(client, '')}".strip() for client, title in TITLES.items()]
    where = f"with Node {seen.node}, on {seen.processors} processors"
    lines = [
        f"Seen in one run on {seen.day}, {where}.",
        "",
        f"| | {' | '.join(heads)} |",
        f"|---{'|---' * len(heads)}|",
    ]
    for scene, title in SCENES.items():
        row = []
        for client in TITLES:
            text = seen.cells.get(scene, {}).get(client) or REASONS.get((client, scene), "")
            row.append(text.replace("|", "\\|").replace("\n", " "))
        lines.append(f"| **{title}** | {' | '.join(row)} |")
    return "\n".join(lines)


def missing(page: str) -> list[str]:
    """What the table of a page has no word about."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines() if "|" in line]
    if len(rows) < 2:
        return ["the table"]
    heads, known = rows[0], {row[0].strip("*"): row[1:] for row in rows[2:]}
    lacking = [title for title in TITLES.values() if not any(head.startswith(f"{title} ") for head in heads)]
    lacking += [title for title in SCENES.values() if title not in known]
    lacking += [
        f"{name}: {heads[place]}" for name, row in known.items() for place, cell in enumerate(row, 1) if not cell
    ]
    return lacking


def table_of(page: str) -> str:
    """What stands between the marks of a page."""
    return page.partition(f"{BEGIN}\n")[2].partition(f"\n{END}")[0]


def main() -> int:
    """Put the table into the page, if it is whole, and keep what it was made of."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    seen = seen_in(Path(sys.argv[1]))
    page = f"{before}{BEGIN}\n{written(seen)}\n{END}{after}"
    if lacking := missing(page):
        sys.stderr.write(f"nothing is written: no word about {', '.join(lacking)}\n")
        return 1
    PAGE.write_text(page)
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(seen), indent=1) + b"\n")
    sys.stdout.write(f"{PAGE} has the table\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
