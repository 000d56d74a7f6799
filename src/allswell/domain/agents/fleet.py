"""The agents of a fleet as they are written down: what each is, what it may hold, and how it is called.

Three kinds, one set of rules. A **command** is started anew for every task; one that speaks ACP is named by `acp`, and
gets its prompt by that protocol (acp.py). A **function** of Python is called: async in the supervisor's own loop, sync
in a process of its own. A **remote** holder is started by somebody else and claims
by itself; it is listed, so that it is missed when it is silent.

Text in a command's words can name what belongs to the task at hand: `{prompt}`, `{handover}` and so on (`PLACES`). A
name in braces that is none of these is a mistake; braces around anything else are just braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from posixpath import join, normpath
from typing import Literal

import msgspec

from allswell.domain.agents.evidence import REPEAT_LIMIT, REPEATS_MOST, in_one_folder
from allswell.domain.agents.permission import why_no_hook, wrong_with_patterns
from allswell.domain.check.model import Location
from allswell.domain.values import nearest
from allswell.errors import Refused

PLACES: Mapping[str, str] = {
    "prompt": "what the agent is asked to do, made from the agent's `prompt`",
    "prompt_file": "the path of a file that holds the prompt",
    "name": "the task's name",
    "payload": "what was submitted with the task: text as it is, anything else as JSON",
    "handover": "what earlier attempts, needed tasks and humans have left for this one, in words; it may be empty",
    "task": "the task's id",
    "attempt": "which attempt this is, from 1",
    "agent": "who holds the task, such as claude.1",
    "role": "the task's role",
    "folder": "the folder it works in: its worktree, if it has one",
    "orders_file": "the path of a file that Allswell writes to when it wants a check-in",
    "session": "the agent's own session that this attempt goes on with; empty where it begins a new one",
}
PROMPT = "{name}\n\n{payload}\n\n{handover}"
_PLACE = re.compile(r"\{([a-z_]+)\}")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
CONCURRENCY_MAX = 1_000
NEVER = ("off",)
"""`resume` of an agent whose sessions are never gone on with."""


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of `[agents]`; lengths of time are milliseconds."""

    name: str = ""
    command: tuple[str, ...] = ()
    acp: tuple[str, ...] = ()
    """The command of an agent that speaks ACP, in the place of `command`."""
    resume: tuple[str, ...] = ()
    """The whole command that goes on with a session of its own; empty: by its `command`, where that is known;
    `["off"]`: never."""
    function: str = ""
    """`module:name`."""
    installed: bool = False
    """Whether its function is looked for among what is installed, and not in its folder: the user's own settings name
    it, and the folder may be anyone's."""
    remote: bool = False
    role: str | None = None
    """Which tasks it takes: those of one role; those without a role, if it is empty; any, if it is not set."""
    concurrency: int = 1
    prompt: str = PROMPT
    hears: Literal["socket", "stdin", "file"] = "socket"
    """How it is asked for a check-in, beside the socket: by a line on its input, or in `{orders_file}`."""
    cwd: str = "."
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()
    """Variables of the supervisor that it gets too, such as `ANTHROPIC_*`."""
    account: str = ""
    """Whose usage limit it runs into: agents of one account wait together."""
    context_window: int | None = None
    """How many tokens its context takes; then how much of it is left is read from what it prints."""
    defer: tuple[str, ...] = ()
    """Which calls of its tools wait for a human (permission.py); for Claude Code."""
    repeat_limit: int | None = None
    """After so many rounds what it repeats is no progress any more; 0: it is not looked for; None: as for all."""
    worktree: bool = False
    ends_with_question: Literal["ask", "done"] = "ask"
    """What follows where it works in a worktree, changes nothing, and its last message is a question."""
    idle: int | None = None
    grace: int = 10_000

    @property
    def repeats(self) -> int | None:
        """After so many rounds what it repeats is no progress any more; None: it is not looked for."""
        return REPEAT_LIMIT if self.repeat_limit is None else self.repeat_limit or None

    @property
    def kind(self) -> Literal["command", "function", "remote"]:
        """What it is."""
        return "command" if self.argv else "function" if self.function else "remote"

    @property
    def argv(self) -> tuple[str, ...]:
        """The words of its command, with places, however it is spoken to."""
        return self.command or self.acp

    def roles(self) -> tuple[str, ...] | None:
        """The roles it claims; None for any."""
        return None if self.role is None else (self.role,)

    def limit_of(self) -> str:
        """The service that is parked when it meets a usage limit."""
        return self.account or self.name


WORK = "work:"
"""How the name of an agent begins that was typed (`allswell work`) and stands in no file."""


def longer_idle(spec: AgentSpec) -> str:
    """How to let an agent go longer without proof of progress: what to type, or where to set it."""
    return "a longer --idle" if spec.name.startswith(WORK) else f"a longer idle in [agents.{spec.name}]"


class UsageSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[usage]`: where the fleet learns how much of its context and session is left."""

    command: tuple[str, ...] = ()
    function: str = ""
    every: int = 60_000
    timeout: int = 10_000
    account: str = ""
    """Whose session it tells of, where it does not say so itself."""


class CompactionSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[compaction]`: what is called with the collected check-ins when the context runs out."""

    command: tuple[str, ...] = ()
    function: str = ""
    timeout: int = 300_000


class Fleet(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that the files say about agents."""

    agents: Mapping[str, AgentSpec] = {}
    usage: UsageSpec = UsageSpec()
    compaction: CompactionSpec = CompactionSpec()
    places: Mapping[str, Location] = {}
    """Where each agent is written."""
    usage_place: Location | None = None
    """Where the source of the usage is written."""


def accounts_of(fleet: Fleet) -> list[str]:
    """The accounts of the agents that a supervisor of this fleet starts."""
    return sorted({spec.limit_of() for spec in fleet.agents.values() if spec.kind != "remote"})


def beside_each_other(agents: Mapping[str, AgentSpec], here: str) -> dict[str, tuple[str, ...]]:
    """Commands that may find somebody at work in their folder, with the names of those; itself, if it takes several.

    `here` is the folder that a relative one counts from.
    """
    folders = {
        name: normpath(join(here, spec.cwd))
        for name, spec in agents.items()
        if spec.argv and not spec.worktree and "{" not in spec.cwd
    }
    found = {}
    for name, folder in folders.items():
        others = [
            other
            for other, place in folders.items()
            if in_one_folder(folder, place) and (other != name or agents[name].concurrency > 1)
        ]
        if others:
            found[name] = tuple(others)
    return found


def wrong_with_agent(spec: AgentSpec) -> list[tuple[str, str]]:
    """Every rule that an agent breaks: the field, and what to do about it."""
    about = {"": _kind_of(spec), "concurrency": _number_of(spec)}
    found = [(field, text) for field, text in about.items() if text]
    words = {
        "command": spec.command,
        "acp": spec.acp,
        "resume": spec.resume,
        "prompt": (spec.prompt,),
        "cwd": (spec.cwd,),
        "env": tuple(spec.env.values()),
    }
    for field, texts in words.items():
        found += [(field, text) for one in texts for text in _strange_places(one, _places_of(field))]
    if spec.command and not any("{prompt}" in word or "{prompt_file}" in word for word in spec.command):
        own = {"{task}", "{payload}", "{name}"}
        if not any(place in word for word in spec.command for place in own):
            found.append(
                ("command", "it contains neither {prompt} nor {prompt_file}: the agent would not know what to do")
            )
    if spec.resume and (wrong := _wrong_resume(spec)):
        found.append(("resume", wrong))
    if spec.hears == "file" and not any("{orders_file}" in word for word in (*spec.argv, *spec.env.values())):
        found.append(("hears", "it is notified by a file, and its command does not contain {orders_file}"))
    if spec.hears == "stdin" and spec.acp:
        found.append(("hears", "an ACP agent hears its protocol on its input: leave it out"))
    if spec.function and not _FUNCTION.fullmatch(spec.function):
        found.append(("function", f"{spec.function!r} is not written module:name"))
    if spec.context_window is not None and spec.context_window < 1:
        found.append(("context_window", f"a context of {spec.context_window} tokens cannot be: 200000 is usual"))
    if spec.defer and (trouble := why_no_hook(spec.command) or wrong_with_patterns(spec.defer)):
        found.append(("defer", f"its calls cannot be made to wait for a human: {trouble}"))
    if not 0 <= (spec.repeat_limit or 0) <= REPEATS_MOST:
        text = f"it must be 1 to {REPEATS_MOST:,}, or 0, which looks for no repetition"
        found.append(("repeat_limit", text))
    if spec.grace < 0 or (spec.idle is not None and spec.idle <= 0):
        found.append(("grace" if spec.grace < 0 else "idle", "a length of time must be positive"))
    return found


def _wrong_resume(spec: AgentSpec) -> str:
    """What is wrong with its command that goes on with a session, if anything."""
    if spec.acp and spec.resume != NEVER:
        return 'an ACP agent goes on with its sessions by its protocol: leave it out, or write ["off"], which is never'
    if not spec.argv:
        return "only an agent with a command has sessions of its own; leave it out"
    if spec.resume != NEVER and not any("{session}" in word for word in spec.resume):
        return 'it does not contain {session}: the agent would not know which one; ["off"] is never'
    return ""


def _kind_of(spec: AgentSpec) -> str:
    """What is wrong with what it is, if anything."""
    given = {"command": spec.command, "acp": spec.acp, "function": spec.function, "remote": spec.remote}
    kinds = [name for name, value in given.items() if value]
    if not kinds:
        return "an agent is a command, acp, a function or remote = true, and this one has none of these"
    if len(kinds) > 1:
        shown = " and ".join(kinds)
        return f"an agent is a command, acp, a function or remote, and this one has {shown}: which of them?"
    return "a remote agent has its own folders: leave worktree out" if spec.remote and spec.worktree else ""


def _number_of(spec: AgentSpec) -> str:
    if 1 <= spec.concurrency <= CONCURRENCY_MAX:
        return ""
    return f"concurrency ({spec.concurrency}) must be 1 to {CONCURRENCY_MAX}"


def _places_of(field: str) -> tuple[str, ...]:
    if field == "prompt":
        return tuple(name for name in PLACES if not name.startswith("prompt"))
    return ("folder",) if field == "cwd" else tuple(PLACES)


def _strange_places(text: str, known: tuple[str, ...]) -> list[str]:
    found = []
    for name in _PLACE.findall(text):
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {{{near}}}?" if near else "there are " + ", ".join(f"{{{one}}}" for one in known)
            found.append(f"nothing is called {{{name}}}; {hint}")
    return found


def places_in(words: Iterable[str]) -> frozenset[str]:
    """The names of all places in the words of a command."""
    return frozenset(name for word in words for name in _PLACE.findall(word))


def fill(text: str, values: Mapping[str, str]) -> str:
    """The text with what its places stand for; what comes in is never looked at again for places of its own."""
    return _PLACE.sub(lambda found: values.get(found[1], found[0]), text)


def word_of(word: str, values: Mapping[str, str], *, after_dashes: bool) -> str:
    """A word of a command, filled in, that the command will not take for an option of its own; or `Refused`.

    What a task brings may begin with a dash. A prompt is then given a line's end before it, which means nothing to
    whoever reads it. Anything else might be changed by that, so it must come after a word `--`.
    """
    filled = fill(word, values)
    place = _PLACE.match(word)
    if place is None or not filled.startswith("-"):
        return filled
    if place[1] == "prompt":
        return f"\n{filled}"
    if after_dashes:
        return filled
    text = f"{{{place[1]}}} begins with a dash here ({filled[:40]!r}), and the command could take it for an option"
    raise Refused("bad_command", f'{text}; put a word "--" before it, or let it read {{prompt_file}}', where="command")


def own_variables(spec: AgentSpec, folder: str) -> dict[str, str]:
    """An agent's variables for a command that is started as it; what names a task or its prompt is not among them."""
    known = {"folder": folder, "role": spec.role or ""}
    return {name: fill(value, known) for name, value in spec.env.items() if {*_PLACE.findall(value)} <= known.keys()}


def holders(spec: AgentSpec, supervisor: str) -> list[str]:
    """The names under which an agent's slots hold tasks; those of another supervisor than `main` carry its name."""
    prefix = "" if supervisor in (MAIN, spec.name) else f"{supervisor}/"
    if spec.concurrency == 1:
        return [f"{prefix}{spec.name}"]
    return [f"{prefix}{spec.name}.{number}" for number in range(1, spec.concurrency + 1)]


MAIN = "main"
"""The supervisor that is not given another name."""


# --- agents of another user -------------------------------------------------------------------------------------------

_VALUES: Mapping[str, tuple[str, ...]] = {
    "setpriv": (
        *("--reuid", "--regid", "--ruid", "--euid", "--rgid", "--egid", "--groups", "--inh-caps", "--ambient-caps"),
        *("--bounding-set", "--securebits", "--pdeathsig", "--selinux-label", "--apparmor-profile", "--seccomp-filter"),
        *("--landlock-access", "--landlock-rule", "--ptracer"),
    ),
    "sudo": (
        *("-u", "-g", "-p", "-h", "-C", "-r", "-t", "-D", "-R", "-T", "-c", "--user", "--group", "--prompt", "--host"),
        *("--close-from", "--role", "--type", "--chdir", "--chroot", "--command-timeout", "--login-class"),
    ),
    "runuser": ("-u", "-g", "-G", "-w", "--user", "--group", "--supp-group", "--whitelist-environment"),
}
"""The programs by which a command becomes another user, and their options that have a word behind them."""


ACP_CLIENT = ("-P", "-m", "allswell.runtime.agents.acp")
"""What stands behind Python where our client is started for an agent with `acp`; the agent's words follow a `--`."""


def own_words(argv: Sequence[str]) -> Sequence[str]:
    """The words of the agent itself, where our client stands before them: by their place, as they may hold a prompt."""
    return argv[argv.index("--") + 1 :] if tuple(argv[1:4]) == ACP_CLIENT and "--" in argv else argv


def stepping_aside(argv: Sequence[str]) -> tuple[str, ...]:
    """The words by which a command becomes another user (`setpriv … --`, `sudo -u agent --`); none: it does not."""
    argv = own_words(argv)
    program = PurePath(argv[0]).name if argv else ""
    values = _VALUES.get(program)
    if values is None:
        return ()
    place = 1
    while place < len(argv) and (argv[place].startswith("-") or (program == "sudo" and "=" in argv[place])):
        if argv[place] == "--":
            return tuple(argv[: place + 1])
        place += 2 if _has_value_behind(argv[place], values) else 1
    return tuple(argv[:place])


def _has_value_behind(word: str, values: Sequence[str]) -> bool:
    """Whether the next word belongs to an option: `--user ada`, `-u ada`, `-nu ada`, but not `-uada`."""
    if word.startswith("--"):
        return word in values
    taking = [at for at, letter in enumerate(word) if f"-{letter}" in values] if word.startswith("-") else []
    return bool(taking) and taking[0] == len(word) - 1


def as_agent(agent: Sequence[str], argv: Sequence[str]) -> tuple[str, ...]:
    """A command that is run on the work of an agent: as the user that the agent is, unless it names one itself.

    What it finds there (tests, Makefiles, filters) the agent may have written.
    """
    return tuple(argv) if stepping_aside(argv) else (*stepping_aside(agent), *argv)
