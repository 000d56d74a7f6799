"""`completion` lets a shell complete `allswell`: it prints the script that the shell needs, or puts it into place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from allswell.doors.cli.commands import UPKEEP, Commands
from allswell.doors.cli.frame import Frame
from allswell.doors.cli.options import Argument, Json, Option
from allswell.errors import Refused

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
    install: Annotated[
        bool, Option("--install", help="Put it where the shell finds it, from the next one on.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the script with which a shell completes commands, options and ids."""
    from allswell.doors.shapes.completion import CompletionShape

    frame = Frame(None, json=json)
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in SCRIPTS:
        raise Refused("unknown_shell", "which shell?", where="shell", hint="`allswell completion bash`, zsh or fish")
    if not install:
        frame.say(CompletionShape(chosen, SCRIPTS[chosen], ()), SCRIPTS[chosen].rstrip())
        return
    try:
        written = _installed(chosen)
    except OSError as error:
        text = f"{error.filename} cannot be written: {error.strerror}"
        raise Refused("not_installed", text, where="--install") from None
    words = f"{' and '.join(map(str, written))} written; a new {chosen} completes `allswell`"
    frame.say(CompletionShape(chosen, SCRIPTS[chosen], tuple(map(str, written))), words)


def _installed(shell: str) -> list[Path]:
    """Put a shell's script into place; the files that were changed. Fish looks there by itself, others are told to."""
    import shlex

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
