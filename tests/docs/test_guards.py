"""The page about guards: its examples run, one after the other, and print what it shows."""

import ast
import asyncio
import contextlib
import inspect
import io
import re
from pathlib import Path

from allswell.domain.service.incident import Incident
from allswell.domain.service.retry import ErrorClass

PAGE = (Path(__file__).parents[2] / "docs" / "guards.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


async def play(names: dict[str, object]) -> list[tuple[str, str, str]]:
    """Run every example; what was typed, what was printed, what the page shows."""
    seen = []
    for code, shown in BLOCK.findall(PAGE):
        compiled = compile(code, "docs/guards.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            ran = eval(compiled, names)  # noqa: S307 - our own page
            if inspect.isawaitable(ran):
                await ran
        seen.append((code, printed.getvalue(), shown))
    return seen


def test_the_examples_run_and_print_what_is_shown() -> None:
    seen = asyncio.run(play({}))
    assert len(seen) > 9
    for code, printed, shown in seen:
        assert printed == shown, code


def test_every_class_and_every_incident_is_told() -> None:
    assert [name for name in ErrorClass if f"| `{name}` |" not in PAGE] == []
    assert [kind.__name__ for kind in Incident.__subclasses__() if f"`{kind.__name__}`" not in PAGE] == []
