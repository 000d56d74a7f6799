"""The text of a check-in, in the two forms that agents were taught by the original protocol (O2, O3).

    CHECKPOINT: <task>                     CHECKPOINT: <task>
    Status: …                              Progress: 40%
    Completed: …                           Current Activity: …
    Remaining: …                           Blockers: …
    Files Modified: …                      Estimated Remaining: …
    Estimated Progress: 40%

Agents write prose around it, markdown on it and lists below it, so reading is generous: labels in any case and order,
with stars, dashes or a number before them; a value on the same line, on those below, or both. Nothing is required but
the first line and one known label. Where a text has several, the last one counts: it is the newest.

The text itself is kept as the check-in's note and goes to the next holder as it was written; what is read here is
what the watch acts upon and shows (how far the work is, what blocks it).
"""

from __future__ import annotations

import re

import msgspec

_HEAD = re.compile(r"^[ \t>#*_`-]*CHECKPOINT\b[*_`]*\s*:[*_`]*[ \t]*(?P<task>[^\n]*)$", re.IGNORECASE | re.MULTILINE)
_LABELS = {
    "status": "status",
    "completed": "completed",
    "remaining": "remaining",
    "files modified": "files",
    "estimated progress": "progress",
    "progress": "progress",
    "current activity": "activity",
    "blockers": "blockers",
    "estimated remaining": "time_left",
}
_LABEL = re.compile(
    r"^[\s>*_#`\d.)-]*(?P<label>"
    + "|".join(sorted(_LABELS, key=len, reverse=True))
    + r")[*_`]*\s*:[*_`]*(?P<value>.*)$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)]|\[[ xX]\])\s+")
_PERCENT = re.compile(r"(\d+(?:[.,]\d+)?)\s*(?:%|percent\b)", re.IGNORECASE)
_PARTS = re.compile(r"(\d+)\s*(?:/|of|out of)\s*(\d+)", re.IGNORECASE)
_SHARE = re.compile(r"\s*([01](?:\.\d+)?|\.\d+)\s*")
_SHOWN = 200
"""Characters in which a share must stand: what an agent writes is searched, so it is bounded."""
_NOTHING = frozenset(("", "none", "n/a", "na", "-", "nothing", "no", "no blockers"))


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent wrote, as far as it could be read."""

    task: str
    status: str = ""
    completed: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    progress: float | None = None
    """A share from 0 to 1."""
    activity: str = ""
    blockers: tuple[str, ...] = ()
    time_left: str = ""
    """In the agent's own words: nobody's deadline moves for it."""


def read_checkpoint(text: str) -> Checkpoint | None:
    """The last checkpoint in a text; None if there is none."""
    heads = list(_HEAD.finditer(text)) if "checkpoint" in text.casefold() else []
    for place in range(len(heads) - 1, -1, -1):
        end = heads[place + 1].start() if place + 1 < len(heads) else len(text)
        found = _fields(text[heads[place].end() : end].splitlines())
        if found:
            return _checkpoint(heads[place]["task"].strip().strip("*_`[]<> "), found)
    return None


def progress_in(text: str) -> float | None:
    """How far the work is, where a text holds a checkpoint that says so."""
    found = read_checkpoint(text)
    return None if found is None else found.progress


def _fields(lines: list[str]) -> dict[str, list[str]]:
    """The lines of each label. Prose after an empty line belongs to nobody; a list goes on over empty lines."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    gap = False
    for line in lines:
        if label := _LABEL.match(line):
            current = found.setdefault(_LABELS[label["label"].lower()], [])
            current.clear()  # the same label again: what was said last holds
            line = label["value"]  # noqa: PLW2901 - the rest of it
        elif not line.strip():
            gap = True
            continue
        elif gap and not _BULLET.match(line):
            current = None
        if current is not None:
            current += [value] if (value := _BULLET.sub("", line).strip().strip("*_`").strip()) else []
        gap = False
    return found


def _checkpoint(task: str, found: dict[str, list[str]]) -> Checkpoint:
    return Checkpoint(
        task,
        " ".join(found.get("status", ())),
        _listed(found.get("completed", [])),
        _listed(found.get("remaining", [])),
        tuple(name.strip("`") for name in _listed(found.get("files", []))),
        _share(" ".join(found.get("progress", ()))),
        " ".join(found.get("activity", ())),
        _listed(found.get("blockers", [])),
        " ".join(found.get("time_left", ())),
    )


def _listed(lines: list[str]) -> tuple[str, ...]:
    """A list, written below each other or with commas on one line; the words for nothing are nothing."""
    parts = [part.strip().strip("`") for part in lines[0].split(",")] if len(lines) == 1 else lines
    return tuple(part for part in parts if part.casefold().rstrip(".") not in _NOTHING)


def _share(words: str) -> float | None:
    words = words[:_SHOWN]
    if percent := _PERCENT.search(words):
        share = float(percent[1].replace(",", ".")) / 100
    elif (parts := _PARTS.search(words)) and int(parts[2]):
        share = int(parts[1]) / int(parts[2])
    elif plain := _SHARE.fullmatch(words):
        share = float(plain[1])
    else:
        return None
    return share if 0 <= share <= 1 else None


def holds_checkpoint(text: str) -> bool:
    """Whether a text holds a checkpoint; asked of every message, so nearly all of them only cost a search."""
    return ("CHECKPOINT" in text or "Checkpoint" in text) and read_checkpoint(text) is not None


_BLOCK = 24
"""Lines after the head of a checkpoint that may belong to it."""


_LINE_MOST = 2_000
"""Characters of a line: with each line the block is read again, in the thread that reads for a whole fleet."""


class CheckpointFinder:
    """Finds the checkpoints in an output that is plain text, line by line."""

    def __init__(self) -> None:
        self._block: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether the lines that come next may belong to a checkpoint."""
        return bool(self._block)

    def add(self, line: str) -> str | None:
        """Take one line more; the checkpoint so far, where this line belongs to one."""
        line = line[:_LINE_MOST]
        if "checkpoint" in line.casefold() and ":" in line:
            self._block = [line]
            return None
        if not self._block:
            return None
        self._block.append(line)
        text = "\n".join(self._block)
        if len(self._block) > _BLOCK:
            self._block = []
        return text if read_checkpoint(text) is not None else None
