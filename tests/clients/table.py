"""Writes the table of docs/agents.md of what the scenes with real clients have left: `python -m tests.clients.table`.

`make clients` calls it. A cell is what one scene has seen Allswell do; where a scene was not run, or did not go as it
should, the cell says why, or the table is not written.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

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


def cells(folder: Path) -> dict[tuple[str, str], Mapping[str, str]]:
    """What the scenes have left."""
    kept = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {(one["client"], one["scene"]): one for one in kept}


def written(seen: Mapping[tuple[str, str], Mapping[str, str]], day: str) -> str:
    """The table, scene by scene."""
    versions = {client: one["version"] for (client, _), one in seen.items()}
    heads = [f"{title} {versions.get(client, '')}".strip() for client, title in TITLES.items()]
    lines = [f"Seen on {day}.", "", f"| | {' | '.join(heads)} |", f"|---{'|---' * len(heads)}|"]
    for scene, title in SCENES.items():
        row = []
        for client in TITLES:
            text = seen[client, scene]["text"] if (client, scene) in seen else REASONS.get((client, scene), "")
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


def main() -> int:
    """Put the table into the page, if it is whole."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = written(cells(Path(sys.argv[1])), dt.datetime.now(dt.UTC).date().isoformat())
    page = f"{before}{BEGIN}\n{table}\n{END}{after}"
    if lacking := missing(page):
        sys.stderr.write(f"nothing is written: no word about {', '.join(lacking)}\n")
        return 1
    PAGE.write_text(page)
    sys.stdout.write(f"{PAGE} has the table\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
