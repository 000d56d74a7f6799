"""The public API as a type checker sees it, as text: one line for every name, method and property.

python -m tests.tidy.public_api     writes public_api.txt anew; what changed is for the review to see
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from mypy import api
from mypy.version import __version__ as mypy_version

import allswell

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_suffix(".txt")
HEAD = f"# as mypy {mypy_version.split('+')[0]} sees it; written by: python -m tests.tidy.public_api\n"
CLASSES = ("Guard", "Lease", "Scope", "SyncLease", "SyncWatch", "SyncWork", "Watch", "Work")
"""Those whose methods and properties are public; the others are values and errors, which their fields show."""
_NOTE = re.compile(r':(\d+): note: Revealed type is "(.*)"$')
_KEYS = re.compile(r"\{('[^{}]*)\}")
_MODULE = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])")


def members(name: str) -> list[str]:
    """The public methods and properties of a class."""
    return [member for member in dir(getattr(allswell, name)) if not member.startswith("_")]


def seen() -> dict[str, str]:
    """Every public name, and its type in short."""
    lines, names = ["import allswell"], [""]
    for name in allswell.__all__:
        lines.append(f"reveal_type(allswell.{name})")
        names.append(name)
    for name in CLASSES:
        lines.append(f"def look_at_{name}(one: allswell.{name}) -> None:")
        names.append("")
        for member in members(name):
            lines.append(f"    reveal_type(one.{member})")
            names.append(f"{name}.{member}")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text("\n".join(lines) + "\n")
        config = f"--config-file={ROOT / 'pyproject.toml'}"
        out, err, code = api.run([config, f"--cache-dir={ROOT / '.mypy_cache'}", "--no-pretty", str(program)])
    if code:
        raise AssertionError(f"a public name is unknown to type checkers:\n{out}{err}")
    found = {}
    for line in out.splitlines():
        note = _NOTE.search(line)
        if note is not None:
            found[names[int(note[1]) - 1]] = _KEYS.sub(_sorted_keys, _MODULE.sub("", note[2]))
    return found


def _sorted_keys(match: re.Match[str]) -> str:
    """The keys of a TypedDict by name: mypy has them as they are written, or, from its cache, sorted."""
    return "{" + ", ".join(sorted(re.split(r", (?=')", match[1]))) + "}"


def text() -> str:
    """What is kept."""
    return HEAD + "".join(f"{name}: {told}\n" for name, told in seen().items())


if __name__ == "__main__":
    KEPT.write_text(text())
    sys.stdout.write(f"{KEPT} is written\n")
