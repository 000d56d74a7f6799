"""`completion` lets a shell complete `allswell`; what could be typed next is read from the declarations."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, write
from allswell.interfaces.cli.options import Argument, Option, Parameter, Storeless, parameters
from allswell.interfaces.cli.parser import tokens
from allswell.interfaces.cli.registry import UPKEEP, CliCommand, Commands
from allswell.interfaces.cli.rendering import plain

if TYPE_CHECKING:
    from allswell.store.views import Views


_BASH = """\
_allswell() {
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    mapfile -t COMPREPLY < <(allswell --complete bash "${words[@]}" 2>/dev/null)
}
complete -o bashdefault -o default -F _allswell allswell
"""
_ZSH = """\
#compdef allswell
_allswell() {
    local -a typed found
    typed=("${(@)words[2,CURRENT]}")
    found=("${(@f)$(allswell --complete zsh "${typed[@]}" 2>/dev/null)}")
    if [[ -n $found ]]; then _describe allswell found; else _files; fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _allswell allswell
"""
_FISH = """\
function __allswell_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l last (commandline --current-token --cut-at-cursor)
    set -l found (allswell --complete fish $words[2..] "$last" 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path "$last"
    end
end
complete --command allswell --no-files --arguments '(__allswell_complete)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        UPKEEP,
        "completion",
        completion,
        "allswell completion --install          for the shell that you use",
        "source <(allswell completion bash)     for this terminal only",
    )


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"] | None,
        Argument(metavar="SHELL", help="bash, zsh or fish. Default: yours, as $SHELL says."),
    ] = None,
    install: Annotated[bool, Option("--install", help="Install it for every new shell.")] = False,
    *,
    context: Storeless,
) -> None:
    """Print the script that lets your shell complete commands, options and ids."""
    from allswell.views.commands import CompletionShape

    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in SCRIPTS:
        raise Refused("unknown_shell", "which shell?", where="shell", hint="`allswell completion bash`, zsh or fish")
    if not install:
        context.say(CompletionShape(chosen, SCRIPTS[chosen], ()), SCRIPTS[chosen].rstrip())
        return
    try:
        written = _installed(chosen)
    except OSError as error:
        text = f"{error.filename} cannot be written: {error.strerror}"
        raise Refused("not_installed", text, where="--install") from None
    words = f"{' and '.join(map(str, written))} written; a new {chosen} completes `allswell`"
    context.say(CompletionShape(chosen, SCRIPTS[chosen], tuple(map(str, written))), words)


def _installed(shell: str) -> list[Path]:
    """Put a shell's script into place; the files that were changed. Fish looks there by itself, others are told to."""
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        return _written(config / "fish" / "completions" / "allswell.fish", SCRIPTS[shell])
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    script = data / "allswell" / f"completion.{shell}"
    changed = _written(script, SCRIPTS[shell])
    settings = Path.home() / f".{shell}rc"
    line = f"source {shlex.quote(str(script))}\n".encode()
    before = settings.read_bytes() if settings.exists() else b""
    if line in before:
        return changed
    with settings.open("ab") as file:
        file.write(line if before.endswith(b"\n") or not before else b"\n" + line)
    return [*changed, settings]


def _written(path: Path, text: str) -> list[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return [path]


# What could be typed next: commands, options and their values, as the same declarations have it.
#
# A shell's script calls `allswell --complete SHELL WORD…` with the words so far, the last of which is being typed, and
# gets one suggestion a line. Whatever goes wrong meanwhile is kept to ourselves: somebody is typing. A store is looked
# into only if it is a file, and not for long.

_MOST = 200
_BARE_WORD = re.compile(r"[\w.@%+,/-]+")
"""What needs no quotes in any shell."""


class Suggestion(NamedTuple):
    """A word that could stand here, and what it means."""

    word: str
    about: str = ""


def complete(every: Commands, bare: CliCommand, given: Sequence[str]) -> None:
    """Write what could stand in the place of the last word, as the shell named first wants it."""
    shell, *words = given or ["bash"]
    *before, typed = words or [""]
    prefix = ""
    if shell == "bash":
        before, typed = _joined(before, typed)  # it takes `=` for a word of its own, and replaces what is behind it
    elif typed.startswith("--") and "=" in typed:
        prefix = typed.partition("=")[0] + "="
    for word, about in suggestions(every, bare, before, typed):
        said = plain(about)
        if shell == "zsh":
            write(f"{prefix}{word}".replace(":", "\\:") + (f":{said}" if said else "") + "\n")
        else:
            write(f"{prefix}{word}" + (f"\t{said}" if said and shell == "fish" else "") + "\n")


def _joined(before: list[str], typed: str) -> tuple[list[str], str]:
    """The words as they were typed, where bash has taken `--state=held` apart."""
    if typed == "=" and before:
        return before[:-1], f"{before[-1]}="
    if before[-1:] == ["="] and len(before) > 1:
        return before[:-2], f"{before[-2]}={typed}"
    return before, typed


def suggestions(every: Commands, bare: CliCommand, before: Sequence[str], typed: str) -> list[Suggestion]:
    """What could stand behind these words and begins as typed; from `--name=` on, only the value."""
    found: list[Suggestion] = []
    with suppress(Exception):
        command, rest = every.find(before)
        typed_value = typed.partition("=")[2] if typed.startswith("--") and "=" in typed else typed
        found += _next_words(every, before)
        if command is not None or not before:
            found += _for_command(command or bare, rest, typed)
        found = [one for one in found if one.word.startswith(typed_value)]
    return list({one.word: one for one in found}.values())


def _next_words(every: Commands, before: Sequence[str]) -> Iterator[Suggestion]:
    """The next word of every command that begins so."""
    for name in every.below(before):
        words = name.split()
        last = len(words) == len(before) + 1
        yield Suggestion(words[len(before)], every.get(name).summary if last else "")


def _for_command(command: CliCommand, rest: Sequence[str], typed: str) -> Iterable[Suggestion]:
    known = parameters(command.function)
    seen = list(tokens(known, rest))
    store = next((one.text for one in seen if one.option is not None and one.option.name == "store"), None)
    places = [one for one in known if one.placed]
    filled = [one.word for one in seen if one.kind == "place"]
    name, sign, value = typed.partition("=")
    if any(one.kind == "rest" for one in seen):
        return []
    if seen and seen[-1].option is not None and not seen[-1].option.flag and seen[-1].text is None:
        return _values(seen[-1].option, typed, store, filled)
    if sign and name.startswith("--"):
        return [found for one in known if name in one.declared.names for found in _values(one, value, store, filled)]
    if typed.startswith("-"):
        return _option_names(known, {one.option.name for one in seen if one.option is not None})
    return _values(places[len(filled)], typed, store, filled) if len(filled) < len(places) else []


def _option_names(known: Sequence[Parameter], used: set[str]) -> Iterator[Suggestion]:
    for one in known:
        if one.listed or one.name not in used:
            yield from (Suggestion(name, one.declared.help) for name in one.declared.names if name.startswith("--"))
    yield Suggestion("--help", "Show the help page.")


def _values(one: Parameter, typed: str, store: str | None, filled: Sequence[str]) -> list[Suggestion]:
    found = [Suggestion(choice) for choice in one.choices]
    for kind in one.declared.of:
        found += _constants(kind) or _stored(kind, typed, store, filled)
    return [suggestion for suggestion in found if _BARE_WORD.fullmatch(suggestion.word)]


def _constants(kind: str) -> list[Suggestion]:
    """The values of a kind that are the same everywhere."""
    if kind == "state":
        from allswell.domain.task.model import State

        return [Suggestion(state) for state in State]
    if kind == "event":
        from allswell.domain.rules.event import KINDS

        return [Suggestion(name, event.meaning) for name, event in KINDS.items()]
    if kind == "error class":
        from allswell.domain.service.retry import ErrorClass

        return [Suggestion(one) for one in ErrorClass]
    if kind == "setting":
        from allswell.settings import SETTINGS

        return [Suggestion(name) for name in SETTINGS]
    return []


def _stored(kind: str, typed: str, store: str | None, filled: Sequence[str]) -> list[Suggestion]:
    """What the store has of a kind."""
    return CliContext(store, json=True).glance(lambda views: _looked_up(views, kind, typed, filled), [])


async def _looked_up(views: Views, kind: str, typed: str, filled: Sequence[str]) -> list[Suggestion]:
    if kind == "task":
        from allswell.domain.task.model import TaskFilter

        open_ones = TaskFilter(open=True, limit=_MOST)
        by_id = TaskFilter(after=typed, limit=_MOST)  # ended ones too, where an id was begun
        rows = await views.view_tasks(by_id if typed.startswith("t_") else open_ones)
        by_name = [Suggestion(row.task.name) for row in rows]
        return [*(Suggestion(row.task.id, row.task.name) for row in rows), *by_name]
    if kind == "run":
        return [Suggestion(one.id, one.name) for one in await views.view_runs(limit=_MOST)]
    asked = await views.view_questions(limit=_MOST)
    if kind == "question":
        return [Suggestion(one.id, one.text) for one in asked]
    from allswell.domain.question import labelled

    return [Suggestion(way.key, labelled(way)) for one in asked if one.id in filled for way in one.options]
