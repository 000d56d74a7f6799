"""Generates the watch for code that is not async from the async one.

python -m tests.tidy.sync_watch     writes src/allswell/engine/sync.py anew; test_api.py holds it to be current
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ENGINE = Path(__file__).parents[2] / "src" / "allswell" / "engine"
KEPT = ENGINE / "sync.py"
WATCH = ("WatchViews", "GuardWatch", "MeshWatch", "Claiming", "DecisionWatch", "Watch")
"""The classes that a watch is made of, in their order."""
NOT_CALLS = {"take_up", "repeat"}
"""Async methods that only make sense in the watch's own loop."""
AT_ONCE = {"held"}
"""Methods that are not async, and hand out what must be one of those that wait."""
HANDLES = re.compile(r"\b(Lease|Held)\b")
HEAD = '''"""The watch for code that is not async: the same calls, each waiting for its answer.

Generated from `watch.py` and `lease.py`, with their parameters and sentences: change those, and then run
`python -m tests.tidy.sync_watch`. What cannot be generated is in `sync_base.py`.
"""

# ruff: noqa: ANN401, PLR0913 - as the calls have it that these are made of
'''
CLASSES = {
    "SyncHeld": ("SyncHeld(AttemptHandle)", "One attempt at one task, held by an agent.", "_held", "_wait_for"),
    "SyncLease": (
        "SyncLease(LeaseFields, SyncHeld)",
        "The right to one attempt at one task, for code that is not async.",
        "",
        "",
    ),
    "SyncWatch": ("SyncWatch(OwnThread)", "An open watch, for code that is not async.", "_open", "wait_for"),
}


def calls(tree: ast.Module, classes: tuple[str, ...]) -> Iterator[ast.AsyncFunctionDef | ast.FunctionDef]:
    """The public methods of these classes that become calls which wait."""
    for kind in tree.body:
        if not isinstance(kind, ast.ClassDef) or kind.name not in classes:
            continue
        for method in kind.body:
            if (
                isinstance(method, ast.AsyncFunctionDef) and method.name not in NOT_CALLS and method.name[0] != "_"
            ) or (isinstance(method, ast.FunctionDef) and method.name in AT_ONCE):
                yield method


def text_of(call: ast.AsyncFunctionDef | ast.FunctionDef, behind: str, wait: str) -> str:
    """A call that waits, as text."""
    arguments = call.args
    passed = []
    for one in (*arguments.args[1:], *arguments.kwonlyargs):
        handle = one.annotation is not None and HANDLES.search(ast.unparse(one.annotation))
        value = f"self_unwrapped({one.arg})" if handle else one.arg
        passed.append(f"{one.arg}={value}" if one in arguments.kwonlyargs else value)
    if arguments.kwarg is not None:
        passed.append(f"**{arguments.kwarg.arg}")
    answer = ast.unparse(call.returns) if call.returns is not None else "None"
    asked = f"self.{behind}.{call.name}({', '.join(passed)})"
    if isinstance(call, ast.AsyncFunctionDef):
        asked = f"self.{wait}({asked})"
    if re.search(r"\b(Lease|Held|Requested)\b", answer):
        body = f"handed: {answer} = self._handed({asked})\n        return handed"
    else:
        body = asked if answer == "None" else f"return {asked}"
    lines = (ast.get_docstring(call) or "").splitlines()
    sentence = "\n".join(f"        {line}" if line and place else line for place, line in enumerate(lines))
    end = "\n        " if len(lines) > 1 else ""
    made = f'''    def {call.name}({ast.unparse(arguments)}) -> {answer}:
        """{sentence}{end}"""
        {body}
'''
    return HANDLES.sub(r"Sync\1", made).replace("self_unwrapped", "unwrap")


def imports(trees: list[ast.Module], body: str) -> str:
    """The imports of the async modules, as far as this one uses what they bring."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    wanted: dict[str, set[str]] = {
        "allswell.engine.sync_base": {"AttemptHandle", "LeaseFields", "OwnThread", "unwrap"},
        "allswell.engine.watch": {"to_nobody"},
    }
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                names = {alias.name for alias in node.names if alias.asname is None and alias.name in used}
                if names - {name for known in wanted.values() for name in known}:
                    wanted.setdefault(str(node.module), set()).update(names)
    lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(wanted.items())]
    return "\n".join(["from __future__ import annotations", "", *lines])


def generate() -> str:
    """The module, as it is to be."""
    watch, lease = (ast.parse((ENGINE / name).read_text()) for name in ("watch.py", "lease.py"))
    sources = {"SyncHeld": (lease, ("Held",)), "SyncWatch": (watch, WATCH)}
    parts = []
    for name, (bases, sentence, behind, wait) in CLASSES.items():
        parts.append(f'class {bases}:\n    """{sentence}"""\n')
        if name in sources:
            parts += [text_of(call, behind, wait) for call in calls(*sources[name])]
    body = "\n".join(parts) + '\n\n__all__ = ["SyncHeld", "SyncLease", "SyncWatch"]\n'
    text = f"{HEAD}\n{imports([watch, lease], body)}\n\n\n{body}"
    for words in (["check", "--fix", "--select", "I,F401"], ["format"]):
        command = [sys.executable, "-m", "ruff", *words, "--quiet", "--stdin-filename", str(KEPT), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ENGINE).stdout
    return text


if __name__ == "__main__":
    KEPT.write_text(generate())
    sys.stdout.write(f"{KEPT} is written\n")
