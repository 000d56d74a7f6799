"""All commands: what each is called, what it does, and where its help is shown.

A name has one word or more: `tasks`, `key create`. A module declares its commands in `add_to`; it is imported when one
of them is wanted, so that a command line pays for its own command only. The help page and completion, which are about
all of them, import all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from allswell.domain.values import alike
from allswell.errors import Refused
from allswell.interfaces.cli.rendering import cut

# What people type who come from other tools: other names of our commands, and words that mean one of them.
#
# `status` and `ps` are typed by habit, so they are taken. The other words are not, for they mean something a little
# different in each tool: whoever types one is told which command of ours it may be.

OTHER_NAMES: Mapping[str, str] = {"status": "", "ps": "agents"}
"""Names that are taken as they are typed; an empty one is `allswell` without a command."""
_MEANT: Mapping[str, Sequence[str]] = {
    "abort": ("cancel",),
    "add": ("submit",),
    "approve": ("answer",),
    "ack": ("dismiss",),
    "cat": ("logs", "show"),
    "create": ("submit", "init"),
    "delete": ("cancel",),
    "enqueue": ("submit",),
    "exec": ("run",),
    "history": ("events",),
    "ignore": ("dismiss",),
    "info": ("show",),
    "inspect": ("show",),
    "journal": ("events",),
    "kill": ("cancel",),
    "list": ("tasks",),
    "log": ("logs",),
    "ls": ("tasks",),
    "new": ("submit", "init"),
    "output": ("logs",),
    "queue": ("tasks",),
    "reply": ("answer",),
    "rerun": ("retry",),
    "restart": ("retry",),
    "resolve": ("answer",),
    "rm": ("cancel",),
    "serve": ("up",),
    "setup": ("init",),
    "start": ("up", "run"),
    "stop": ("cancel",),
    "tail": ("logs",),
    "top": ("watch",),
    "undo": ("recover",),
}


def by_our_name(words: Sequence[str]) -> list[str]:
    """A line as it is typed here: with our name for its command, where it begins with another one of it."""
    first, *rest = words or [""]
    if first == "help":
        return by_our_name([*rest, "--help"])
    return [*OTHER_NAMES[first].split(), *rest] if first in OTHER_NAMES else list(words)


def meant_by(word: str, known: Sequence[str]) -> list[str]:
    """Commands of ours that somebody may mean who types this word."""
    return [name for name in _MEANT.get(word.casefold(), ()) if name in known]


NAME = "allswell"
RUNNING = "Run"
LOOKING = "Look"
DECIDING = "Decide"
UPKEEP = "Set up and check"
WORKING = "For agents and scripts that work on tasks"
GROUPS = (RUNNING, LOOKING, DECIDING, UPKEEP, WORKING)
"""The groups of the help page, in its order."""
FIRST_DAY = ("run", "recover", "init", "submit", "up", "watch", "questions", "answer", "why", "doctor")
"""The commands of the first day, in the order in which they are met; `allswell help all` lists every one."""
LONGEST = 60
"""So much is repeated of a word that means nothing."""


class CliCommand(NamedTuple):
    """One command; its signature says what it takes, its docstring what it does."""

    name: str
    function: Callable[..., None]
    group: str
    examples: tuple[str, ...]

    @property
    def path(self) -> str:
        """How it is typed."""
        return f"{NAME} {self.name}".rstrip()

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return self.paragraphs[0].partition(". ")[0].rstrip(".") + "."

    @property
    def paragraphs(self) -> list[str]:
        """What it does, in full."""
        lines = [line.strip() for line in (self.function.__doc__ or "").strip().splitlines()]
        return [" ".join(part.split("\n")) for part in "\n".join(lines).split("\n\n")]


class Commands:
    """All commands, in the order of the help page within their groups."""

    def __init__(self, modules: Mapping[str, str] | None = None) -> None:
        self._modules = dict(modules or {})  # where those are declared that have not been wanted yet
        self._added: dict[str, CliCommand] = {}
        self._order = list(self._modules)

    def add(self, group: str, name: str, function: Callable[..., None], *examples: str) -> None:
        """Declare a command; an example may say behind two blanks what it does."""
        self._added[name] = CliCommand(name, function, group, examples)
        if name not in self._order:
            self._order.append(name)

    @property
    def names(self) -> list[str]:
        """What they are called; nothing is imported for it."""
        return list(self._order)

    @property
    def named(self) -> dict[str, CliCommand]:
        """All of them by name."""
        return {name: self.get(name) for name in self._order}

    def get(self, name: str) -> CliCommand:
        """The one of this name."""
        if name not in self._added:
            import_module(self._modules[name]).add_to(self)
        return self._added[name]

    def below(self, words: Sequence[str]) -> list[str]:
        """The names that begin with these words and have more."""
        begin = list(words)
        return [name for name in self._order if name.split()[: len(begin)] == begin and len(name.split()) > len(begin)]

    def find(self, words: Sequence[str]) -> tuple[CliCommand | None, Sequence[str]]:
        """The command that a line names, by as many words as it has, and the words behind; None where it names none."""
        for name in sorted(self._order, key=lambda one: -len(one.split())):
            size = len(name.split())
            if list(words[:size]) == name.split():
                return self.get(name), words[size:]
        return None, words

    def unknown(self, words: Sequence[str]) -> Refused:
        """What is wrong with words that name no command, or only the beginning of some."""
        size = max(size for size in range(len(words) + 1) if self.below(words[:size]))
        if size == len(words) and size:
            names = " or ".join(f"`{NAME} {name}`" for name in self.below(words))
            return Refused("usage", f"{' '.join(words)!r} needs another word", where="command", hint=names)
        typed = " ".join(words[: size + 1])
        if typed in self._order:
            return Refused("usage", f"{typed!r} is several words: leave out the quotes", where="command")
        known = self.below(words[:size])
        meant_by_others = meant_by(typed, known) if not size else []
        alike_ones = alike(typed, () if size else OTHER_NAMES, most=1, ratio=0.8) + alike(typed, known, most=3)
        near = " or ".join(map(repr, dict.fromkeys([*meant_by_others, *alike_ones])))
        meant = f"; did you mean {near}?" if near else ""
        text = f"no such command: {cut(typed, LONGEST)!r}{meant}"
        page = " ".join([NAME, *words[:size], "--help"] if size else [NAME, "help", "all"])
        return Refused("usage", text, where="command", hint=f"`{page}` lists them")
