"""What an attempt is asked to do, and what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import select
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
from msgspec import UNSET

from allswell.domain.agents.cost import Expense
from allswell.domain.agents.denied import NOTHING_DENIED, DecidedCall, Denied, hook_rules, remark
from allswell.domain.agents.evidence import BUSY, REPEAT_LIMIT, EvidenceKind, EvidenceState
from allswell.domain.agents.fleet import AgentSpec, fill
from allswell.domain.agents.handover import BaseMoved, NeedDone, in_words
from allswell.domain.agents.permission import PLUGIN, with_hooks_on, without_settings
from allswell.domain.agents.quota import DEFAULT as QUOTA
from allswell.domain.agents.quota import Quota
from allswell.domain.agents.refusal import UsageLimit
from allswell.domain.agents.result import result_of, seems_to_ask
from allswell.domain.agents.session import COLD, Warmth, has_refused, program_of
from allswell.domain.agents.status import Survivors
from allswell.domain.agents.usage import Usage
from allswell.domain.ids import TaskId, file_name
from allswell.domain.lease.verification import NOT_VERIFIED
from allswell.domain.receipts.receipt import End, Receipt, Verification, told
from allswell.domain.receipts.snapshot import SnapshotLimits
from allswell.domain.rules.event import Event
from allswell.domain.scopes import VARIABLE as DEADLINE
from allswell.domain.scopes import write_instant
from allswell.domain.service.retry import Failure
from allswell.domain.values import end_of, on_one_line, quoted
from allswell.engine.lease import Lease
from allswell.errors import AllswellError, Refused
from allswell.runtime.agent_socket import SECRET, VARIABLE
from allswell.runtime.attempt.permission_hook import digest_of
from allswell.runtime.attempt.warm import MESSAGE, ends_of, last_receipt, warmth_of_agent, warmth_of_command, with_spent
from allswell.runtime.host import boot_id
from allswell.runtime.process import (
    EndCause,
    ProcessResult,
    allowed_environment,
    checked_argv,
    checked_cwd,
    find_program,
)
from allswell.runtime.process.command import DEFAULT_CAP
from allswell.runtime.propagation import HANDOVER, HANDOVER_FILE
from allswell.runtime.receipts import StateDir, attempt_name
from allswell.runtime.workspace.files import open_plain, remove_file, write_file
from allswell.timing.tracing import trace_environment

Echo = Callable[[int, bytes], None]
"""Takes what the command prints as it passes, with 1 or 2 for the stream, in a thread of the stream's own."""


@dataclass(frozen=True)
class AttemptLimits:
    """How long an attempt may take; milliseconds."""

    timeout: int | None = None
    """The hard limit; None: the lease's own, which bounds it in any case."""
    idle: int | None = None
    """Without proof of progress for so long it is ended; None: it is not."""
    grace: int = 10_000
    """Between SIGTERM and SIGKILL, and for the tree when the supervisor is gone."""
    leave: int = 30_000
    """What the command has to end by itself once it has said its last word (`done`, `fail`, …)."""
    busy: float = BUSY
    """The share of one processor from which its processes count as at work."""
    repeats: int | None = REPEAT_LIMIT
    """After so many rounds what it repeats is no progress any more (`repeat_limit`); None: it is not looked for."""
    longer_idle: str = ""
    """How to give it a longer `idle`: what to type, or what to set. The verdict says so."""

    def __post_init__(self) -> None:
        if self.repeats is not None and self.repeats < 1:
            raise Refused("bad_limit", f"repeats ({self.repeats}) must be positive", where="repeats")
        for name in ("timeout", "idle", "grace", "leave"):
            length = getattr(self, name)
            if length is not None and length < (0 if name in ("grace", "leave") else 1):
                raise Refused("bad_limit", f"{name} ({length} ms) must be positive", where=name)


@dataclass(frozen=True)
class OutputListeners:
    """Whom to tell of what an agent says in its output; each is called in the loop."""

    checkpoint: Callable[[str], None]
    limit: Callable[[UsageLimit], None]
    usage: Callable[[Usage], None]
    context_window: int | None = None
    """How many tokens its context takes; None: how much of it is left is not told."""


@dataclass(frozen=True)
class LaunchSpec:
    """One attempt, checked: `order_for` makes it, and refuses what cannot be run."""

    argv: tuple[str, ...]
    path: str
    cwd: str
    env: Mapping[str, str]
    limits: AttemptLimits = AttemptLimits()
    quota: Quota = QUOTA
    """What it may put into the store."""
    folder: Path | None = None
    """The folder whose work is kept at a bad end (in a repository: the whole working tree), and watched for changes."""
    snapshot: SnapshotLimits = field(default_factory=lambda: SnapshotLimits(timeout=10_000, git_timeout=10_000))
    store: str | None = None
    """The path of a store that lies in the folder and not in `.allswell/`: its changes are not the command's work."""
    stdin: int | None = None
    """A descriptor that the command reads from; None: empty. It stays the caller's to close."""
    terminal: int | None = None
    """The other end of the terminal that `stdin` is, where it is one: what is printed comes out there."""
    follows: bool = False
    """Whether a person may stop it, and its limits with it."""
    echo: Echo | None = None
    listeners: OutputListeners | None = None
    """Whom to tell of checkpoints, limits and usage; None: they are not looked for in plain text, either."""
    cap: int = DEFAULT_CAP
    """Bytes kept of each stream."""
    keep_children: bool = False
    """Whether those go on running whom the command leaves when it ends by itself."""
    keep_transcript: bool = True
    """Whether what it printed is kept after a good end like any other; else only the newest of such are."""
    resume: tuple[str, ...] = ()
    """What to type to go on, for the receipt."""
    verify: tuple[str, ...] = ()
    """The command that verifies its work, where that is another one than its task says: one with values put in."""
    handover: str = ""
    """What the attempt is told of what came before it (`handover_of`)."""
    pipes_handover: bool = False
    """Whether that is its standard input, too, where there is no other."""
    cancels: bool = False
    """Whether SIGINT asks it to cancel what it does and to end by itself; it has half of the grace for that."""
    defer: tuple[str, ...] = ()
    """Which calls of its tools wait for a human (`domain/agents/permission.py`)."""
    ends_with_question: str = ""
    """What follows where it works in a worktree of ours, changes nothing and ends with a question: `ask` asks a human;
    anything else is done."""
    agent: AgentSpec | None = None
    """The agent of the settings that it is run as, where it is one."""
    earlier: TaskId | None = None
    """The ended task whose work it goes on with."""
    warmth: Warmth = COLD
    """Whether it goes on with its agent's own session."""
    outsiders: bool = False
    """Whether who knows the attempt's secret may speak for it from outside of its process tree."""


def order_for(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    hand_on: Sequence[str] = (),
    limits: AttemptLimits | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> LaunchSpec:
    """An order, or `Refused`; `env` is added to an allowlist of our own, `hand_on` widens that ("ANTHROPIC_*").

    What else an order has (`stdin`, `echo`, `resume`, …) is set with `dataclasses.replace`.
    """
    words = checked_argv(argv)
    place = checked_cwd(cwd)
    variables = {**allowed_environment(env, more=hand_on), "PWD": place}
    path = find_program(words[0], place, variables)
    kept = None if folder is None else Path(checked_cwd(folder))
    own = limits or AttemptLimits()
    return LaunchSpec(words, path, place, variables, own, folder=kept, outsiders=outsiders_may_speak())


_outsiders: bool | None = None


def outsiders_may_speak() -> bool:
    """Whether knowing an attempt's secret is enough to speak for it; the settings are loaded when this is asked."""
    global _outsiders  # noqa: PLW0603 - one set of settings for one process
    if _outsiders is None:
        from allswell.settings import look  # what else is wrong with the settings is for others to say

        _outsiders = look().value("socket_speakers") == "secret"
    return _outsiders


@dataclass(frozen=True)
class AttemptOutcome:
    """How an attempt ended, or is ending, as far as it is known. What follows for the task is for the caller to say."""

    end: End
    reason: str
    """In words."""
    result: ProcessResult | None = None
    """How the process tree ended; None if it never started."""
    limit: int | None = None
    """The limit that it has reached, in ms."""
    elapsed: int = 0
    standing: EvidenceState | None = None
    """What it had shown."""
    session: tuple[str, str] | None = None
    """The agent's own session: dialect and id."""
    receipt: Receipt | None = None
    """None at a good end."""
    receipt_path: Path | None = None
    """None if there is none, or if it could not be written."""
    said: str | None = None
    """The agent's last word through its socket (`done`, `fail`, `release`, `ask`): the lease is over then."""
    failure: Failure | None = None
    """What went wrong, where the agent has said so better than an exit code does: exit code 0 is not always done."""
    value: object = UNSET
    """What it returned, where it is a function."""
    message: str = ""
    """The agent's last message."""
    changed: int | None = None
    """How many files it has changed in its folder; None where that is not known."""
    open_call: str = ""
    """The call of a tool that had brought nothing when it was over, in words."""
    verification: Verification | None = None
    """What came of the verification of its work, where its task wants one and it said that it was done."""
    denied: Denied = NOTHING_DENIED
    """The calls that its program refused."""
    brought: bool = False
    """Whether it has said itself what it brought, when it said that it was done."""
    error: AllswellError | None = None
    """Why it could not be started."""
    expense: Expense | None = None
    """What it said that it cost."""
    expense_told: bool = True
    """Whether the store knows of that."""
    over_cost: bool = False
    """Whether its task has reached what it may cost."""
    survivors: Survivors | None = None
    """Who still runs of it, and keeps its folder and its slot."""
    warnings: tuple[str, ...] = ()
    last_words: str = ""
    """The end of its output, at a bad end."""
    transcript: tuple[Path | None, Path | None] = (None, None)
    """What it printed, by stream; None where that was nothing, or was not kept."""

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.end is End.DONE

    @property
    def by_itself(self) -> bool:
        """Whether the command ended without anybody's order."""
        return self.result is not None and self.result.ending in (EndCause.EXITED, EndCause.SIGNALLED)

    @property
    def exit_code(self) -> int | None:
        """The command's own exit code, if it had one."""
        return None if self.result is None else self.result.exit_code

    @property
    def seems_to_ask(self) -> bool:
        """Whether it was done without a change, and its last message is a question."""
        return self.ok and self.said is None and seems_to_ask(self.message, self.changed)

    @property
    def warning(self) -> str:
        """What a human should know of it although it may be done: calls that were refused."""
        return remark(self.denied) if self.denied.count else ""

    @property
    def brings(self) -> object:
        """What its task is completed with."""
        if self.value is not UNSET:
            return self.value
        return result_of(self.exit_code, self.message, None if self.session is None else self.session[1], self.changed)


# What an attempt is told of what came before it: how the last one ended, where its work is, what a human has said.
#
# One text for every kind of attempt (`up`, `run`, the steps of flows, functions), and the same places for all:
#
#     {handover}                among the words of a command, in a prompt, in the inputs of a function
#     ALLSWELL_HANDOVER         in the environment; bounded, because the kernel bounds a variable
#     ALLSWELL_HANDOVER_FILE    a file that has all of it
#     `allswell.handover()`     in Python
#     the first check-in        `handover` of its answer
#     standard input            if that would be empty, and a human or a verification has something to say: `claude -p`
#                               and `codex exec` read what is piped to them along with their prompt

PLACE = "{handover}"
_MOST = 96 << 10
"""Bytes of it in a variable or an argument, of which the kernel takes 128 KiB."""
_SHORTENED = "[The beginning is left out: ALLSWELL_HANDOVER_FILE names a file with all of it.]\n"
_RECEIPT_LINES = 40


class ToldBefore(NamedTuple):
    """What earlier attempts, humans and other agents have left for an attempt."""

    text: str
    """Empty if there is nothing."""
    urgent: bool
    """Whether a human, another agent or a verification has said something that the attempt must know."""


def handover_of(
    lease: Lease,
    kept: Receipt | None,
    home: StateDir,
    number: int | None = None,
    *,
    warmth: Warmth = COLD,
    done: Sequence[NeedDone] = (),
) -> ToldBefore:
    """What an attempt is told of what came before it; `number` is its own, where that is counted over several tasks.

    `kept` is the receipt of the last attempt, where it is here; `done` is what its task needs and got. It blocks, but
    for a first attempt.
    """
    last, notes, answers = lease.handover, lease.notes, lease.answers
    receipt = "" if kept is None else _lines(kept, warm=bool(warmth.session))
    needs = lease.granted.task.record.needs_ended
    moved = _moved_on(home.worktrees.absolute() / file_name(lease.task)) if lease.attempt > 1 else None
    told = () if warmth.session else done  # its session has read that
    text = in_words(
        *(number or lease.attempt, last, notes, receipt),
        answers=answers,
        needs=needs,
        warmth=warmth,
        moved=moved,
        done=told,
    )
    after = last is not None and (last.reason == NOT_VERIFIED or bool(last.answer))
    return ToldBefore(text, bool(notes or answers or needs) or after)


def _moved_on(worktree: Path) -> BaseMoved | None:
    if not os.path.lexists(worktree / ".git"):
        return None
    from allswell.runtime.workspace.worktree import moved_on  # most commands have no worktree

    return moved_on(worktree)


def shortened(text: str) -> str:
    """A handover as a variable or an argument can hold it; what is newest stands last, and stays."""
    content = text.encode("utf-8", "surrogateescape")
    if len(content) <= _MOST:
        return text
    return _SHORTENED + end_of(text, len(content[-_MOST:].decode("utf-8", "ignore")))


def with_handover(order: LaunchSpec, lease: Lease, home: StateDir, *, cold: str = "") -> LaunchSpec:
    """The order of a command that is run as it was typed, with what it is told beside its own words.

    It goes on with its agent's own session where that can be: what it is told is its next message then, and nothing is
    piped to it. `cold` is why it shall not.
    """
    kept = last_receipt(lease, home, order.earlier)
    warmth, argv = warmth_of_command(order.argv, order.agent, lease, order.cwd, kept)
    warmth = with_spent(warmth, kept, home)
    if cold:
        warmth, argv = Warmth(why_cold=cold), order.argv
    text, urgent = handover_of(lease, kept, home, warmth=warmth)
    if warmth.session:
        argv = tuple(word.replace(MESSAGE, shortened(text)) for word in argv)
        path = find_program(argv[0], order.cwd, order.env)
        return dataclasses.replace(order, argv=argv, path=path, handover=text, warmth=warmth)
    if lease.verify or text:
        argv = tuple(word.replace(PLACE, shortened(text)) for word in argv)
    return dataclasses.replace(order, argv=argv, handover=text, pipes_handover=urgent, warmth=warmth)


def is_gone(lease: Lease) -> bool:
    """Whether a lease is over or lost, as far as its holder knows: nothing more is done under it."""
    return lease.over or lease.lost is not None


async def has_refused_session(order: LaunchSpec, outcome: AttemptOutcome, lease: Lease, home: StateDir) -> bool:
    """Whether an attempt has ended because its client refused to go on with the session, and can be made once more.

    It has not begun then, so its receipt is taken away.
    """
    receipt, standing = outcome.receipt, outcome.standing
    again = order.warmth.session and outcome.by_itself and outcome.survivors is None
    if not again or receipt is None or is_gone(lease):
        return False
    began = standing is not None and (EvidenceKind.PROTOCOL in standing.last or standing.refusal is not None)
    printed = await asyncio.to_thread(ends_of, receipt)
    refused = has_refused(program_of(order.argv), outcome.exit_code, outcome.elapsed, printed, began=began)
    if refused:
        home.receipts.remove(receipt.id)
    return refused


def told_of_warmth(lease: Lease, warmth: Warmth) -> Event | None:
    """What the journal is told of the session that an attempt goes on with, or not; None where there was none."""
    if warmth.session:
        kind, data = "agent_resumed", {"session": warmth.session}
    elif warmth.why_cold:
        kind, data = "agent_restarted", {"why": warmth.why_cold}
    else:
        return None
    return Event(kind, lease.task, lease.run, lease.agent, lease.token, data)


# What an agent of a fleet is told: the prompt, what came before it, and where it works; as text, in files, as places.


@dataclass(frozen=True)
class Brief:
    """What an agent is told about its task."""

    folder: str
    prompt: str
    handover: ToldBefore
    places: Mapping[str, str]
    prompt_file: Path
    orders_file: Path
    command: tuple[str, ...] = ()
    """The words of its command, with places; none where it is a function."""
    warmth: Warmth = COLD
    """Whether it goes on with its own session: then the prompt is what it is told next."""

    @property
    def work_file(self) -> Path:
        """What a function in a process of its own is told."""
        return self.prompt_file.with_suffix(".work")

    def write(self) -> None:
        """Write the files that it names; `OSError` if that cannot be."""
        for path, text in ((self.prompt_file, self.prompt), (self.orders_file, "")):
            write_file(path, text.encode("utf-8", "surrogateescape"), make=True)

    def remove(self) -> None:
        """Take the files away."""
        for path in (self.prompt_file, self.orders_file, self.work_file):
            with contextlib.suppress(OSError):
                remove_file(path)


def brief_for(
    spec: AgentSpec, lease: Lease, home: StateDir, folder: str, *, cold: str = "", done: Sequence[NeedDone] = ()
) -> Brief:
    """The brief of an attempt at the task that is held; `done` is what it needs and got.

    Its agent goes on with its own session where that can be, and is told only what is new; `cold` is why it shall not.
    """
    kept = last_receipt(lease, home)
    warmth, command = warmth_of_agent(spec, folder, kept)
    warmth = with_spent(warmth, kept, home)
    if cold:
        warmth, command = Warmth(why_cold=cold), spec.argv
    handover = handover_of(lease, kept, home, warmth=warmth, done=done)
    payload = lease.payload
    text = "" if payload is None else payload if isinstance(payload, str) else _json(payload)
    base = home.folder / "briefs" / attempt_name(lease.task, lease.attempt)
    orders_file = base.with_name(base.name + ".orders")
    prompt_file = base.with_name(base.name + ".prompt")
    places = {
        "name": lease.name,
        "payload": text,
        "handover": handover.text,
        "task": lease.task,
        "attempt": str(lease.attempt),
        "agent": lease.agent,
        "role": lease.role,
        "folder": folder,
        "orders_file": str(orders_file),
        "session": warmth.session,
    }
    asked = handover.text if warmth.session else fill(spec.prompt, places)
    prompt = "\n".join(line.rstrip() for line in asked.strip().splitlines())
    while "\n\n\n" in prompt:  # places that were empty leave holes
        prompt = prompt.replace("\n\n\n", "\n\n")
    places |= {"prompt": prompt, "prompt_file": str(prompt_file)}
    return Brief(folder, prompt, handover, places, prompt_file, orders_file, command, warmth)


def _json(payload: object) -> str:
    return msgspec.json.format(msgspec.json.encode(payload), indent=2).decode()


class HandoverPlaces:
    """The places where a command finds its handover, while its attempt lasts; none where there is no handover."""

    def __init__(self, order: LaunchSpec, file: Path) -> None:
        self._order = order
        self._content = order.handover.encode("utf-8", "surrogateescape") + b"\n" if order.handover else b""
        self._file = file
        self._input: int | None = None

    def write(self) -> str | None:
        """Write the file; why it could not be written, if so."""
        try:
            if self._content:
                write_file(self._file, self._content, make=True)
        except OSError as error:
            return f"the file of what came before it cannot be written: {error.strerror or error}"
        return None

    @property
    def variables(self) -> dict[str, str]:
        """What the environment says of it."""
        if not self._content:
            return {}
        return {HANDOVER: shortened(self._order.handover), HANDOVER_FILE: str(self._file.absolute())}

    def stdin(self) -> int | None:
        """What the command reads from: what its order says, or its handover."""
        if self._order.stdin is None and self._content and self._order.pipes_handover:
            with tempfile.TemporaryFile() as file:
                file.write(self._content)
                file.seek(0)
                self._input = os.dup(file.fileno())
        return self._order.stdin if self._input is None else self._input

    def close(self) -> None:
        """The attempt is over."""
        if self._input is not None:
            os.close(self._input)
            self._input = None
        if self._content:
            with contextlib.suppress(OSError):
                remove_file(self._file)


def _lines(receipt: Receipt, *, warm: bool) -> str:
    """What a receipt says, and what to type. Its reasons, notes and names of files may be an agent's: quoted.

    An agent that goes on with its session finds its work in its folder: it has nothing to type.
    """
    commands = () if warm else (*receipt.advice.look, *receipt.advice.recover, *receipt.advice.resume)
    lines = [quoted(on_one_line(told(receipt))), *(f"  {on_one_line(command)}" for command in commands)]
    lines += ["The files that it has changed are in the folder:"] if warm and receipt.changed else []
    lines += [quoted(on_one_line(f"{change.how} {change.path}")) for change in receipt.changed[:_RECEIPT_LINES]]
    return "\n".join(lines)


# What an agent finds in its environment about its own attempt, and needs to speak for it.


def about(lease: Lease, remaining: int | None, socket: str, secret: str) -> dict[str, str]:
    """The variables of an attempt that has so many milliseconds left, or no limit (None).

    Without a socket, there is no secret to say; without a limit, there is no deadline.
    """
    end = None if remaining is None else write_instant(boot_id(), time.monotonic_ns() + remaining * 1_000_000)
    return {
        **trace_environment(),
        "ALLSWELL_TASK": lease.task,
        "ALLSWELL_TOKEN": str(lease.token),
        "ALLSWELL_AGENT": lease.agent,
        "ALLSWELL_ATTEMPT": str(lease.attempt),
        **({} if end is None else {DEADLINE: end}),
        **({VARIABLE: socket, SECRET: secret} if socket else {}),
    }


# What the attempts of one task read as their standard input: each of them all of it, from its beginning.
#
# A single attempt is given the descriptor itself. Where there may be another, a file is wound back for it. What comes
# through a pipe can be read only once, so it is written down as it passes to the first attempt, and the next one is
# given what was written down and then what follows. That has a bound: what is longer reaches the first attempt whole,
# and then there is no other (`spent`).

SPOOLED = 64 << 20
"""Bytes of a piped standard input that are kept for further attempts."""
_PIECE = 65_536


class ReplayableStdin:
    """The standard input of a task's attempts, one after another; whoever made it closes it."""

    def __init__(self, source: int, *, again: bool, most: int = SPOOLED) -> None:
        self.spent = False
        """Whether no other attempt can be given what the first one got."""
        self._source = source
        self._most = most
        self._begins_at: int | None = None
        """Where a file stood when we got it."""
        self._kept: IO[bytes] | None = None
        self._size = 0
        self._feeder: _Feeder | None = None
        if again:
            self._prepare()

    def _prepare(self) -> None:
        if stat.S_ISREG(os.fstat(self._source).st_mode):
            self._begins_at = os.lseek(self._source, 0, os.SEEK_CUR)
        else:
            import tempfile

            self._kept = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this is

    def begin(self, order: LaunchSpec) -> LaunchSpec:
        """The order of the next attempt, with what it reads from."""
        return replace(order, stdin=self.begin_reading())

    def begin_reading(self) -> int:
        """What the next attempt reads from."""
        if self._begins_at is not None:
            os.lseek(self._source, self._begins_at, os.SEEK_SET)
        if self._kept is None:
            return self._source
        self._feeder = _Feeder(self)
        return self._feeder.end_to_read

    def end(self) -> None:
        """The attempt is over."""
        if self._feeder is not None:
            self._feeder.close()
            self._feeder = None

    def close(self) -> None:
        """No further attempt."""
        self.end()
        if self._kept is not None:
            self._kept.close()

    def kept(self, offset: int) -> bytes:
        """A piece of what was written down, from there on; called by the feeder."""
        assert self._kept is not None  # noqa: S101 - there is no feeder elsewhere
        return b"" if self.spent else os.pread(self._kept.fileno(), _PIECE, offset)

    def read_on(self) -> bytes:
        """What follows, written down; called by the feeder when there is something to read, or its end."""
        assert self._kept is not None  # noqa: S101 - there is no feeder elsewhere
        piece = os.read(self._source, _PIECE)
        if self._size + len(piece) > self._most:
            self.spent = True
            self._kept.truncate(0)
        if not self.spent:
            os.pwrite(self._kept.fileno(), piece, self._size)
            self._size += len(piece)
        return piece

    @property
    def source(self) -> int:
        """Where what follows is read from."""
        return self._source


class _Feeder:
    """A thread that writes into the pipe of one attempt."""

    def __init__(self, fed: ReplayableStdin) -> None:
        self.end_to_read, self._into = os.pipe2(os.O_CLOEXEC)
        self._stopping, self._stop = os.pipe2(os.O_CLOEXEC)
        self._fed = fed
        self._thread = threading.Thread(target=self._run, name="allswell input", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what was not taken yet is not lost."""
        os.close(self.end_to_read)  # whoever does not read it any more does not hold it up either
        os.close(self._stop)
        self._thread.join()
        os.close(self._stopping)

    def _run(self) -> None:
        try:
            with contextlib.suppress(OSError):  # it reads no more, which is its own affair
                self._feed()
        finally:
            os.close(self._into)

    def _feed(self) -> None:
        offset = 0
        while piece := self._fed.kept(offset):
            offset += len(piece)
            self._write(piece)
        while self._comes(self._fed.source, select.POLLIN) and (piece := self._fed.read_on()):
            self._write(piece)

    def _write(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            if not self._comes(self._into, select.POLLOUT):
                raise BrokenPipeError
            view = view[os.write(self._into, view[: select.PIPE_BUF]) :]

    def _comes(self, handle: int, event: int) -> bool:
        """Wait until a descriptor is ready; False if we were told to stop before."""
        poll = select.poll()
        poll.register(handle, event)
        poll.register(self._stopping, 0)
        return self._stopping not in dict(poll.poll())


# Permissions for calls of an agent's tools in one attempt: how they reach Claude Code.
#
# A permission rule (`--allowedTools "Bash(npm test)"`) allows more than it says: `timeout 5 npm test`, `npm test 2>&1`
# and `NODE_ENV=x npm test` pass as well, and `*` and brackets have meanings of their own in it. A hook is exact: before
# each call of a tool, Claude Code asks a program of ours (permission_hook.py), which compares. The hook comes in a
# plugin of one session (`--plugin-dir`, which adds to what the command has), made for the attempt and removed after it.
# Claude Code reads it once, when it starts. What the user's own rules and hooks refuse stays refused.
#
# Codex has nothing like it: under `codex exec` nothing asks, and it lists no refusals.

_HOOK = Path(__file__).with_name("permission_hook.py")
_SECONDS = 30
_SETTINGS_MOST = 64 << 10
"""Bytes of a file of settings that a command names."""
_KEPT_SETTINGS, _RULES = "attempt-settings.json", "rules.json"


class PermissionPlugin:
    """The plugin of one attempt that decides about calls; its maker removes it. `OSError` if it cannot be written.

    Its folder is new and belongs to this user alone: a plugin may bring programs along, and none but ours shall be in
    it. `patterns` are the calls that wait for a human. Where the session goes on, a decision about a deferred call
    holds for that call alone, by its id. `context` is told along with the decision.

    Settings that lie in the attempt's folder (`.claude/settings.json`) can switch hooks and plugins off. Where calls
    are to wait, settings that the command line names, which count for more, keep them on. They are in a file: with what
    the command's own settings hold, keys included, they must not stand where every user of the machine can read them.
    """

    def __init__(
        self, decision: DecidedCall | None, patterns: Sequence[str], order: LaunchSpec, *, context: str = ""
    ) -> None:
        self._settings = _settings_for(order) if patterns else ""
        self._folder = Path(tempfile.mkdtemp(prefix="allswell-permissions-"))
        rules = json.dumps(hook_rules(decision, patterns, same_session=bool(order.warmth.session), context=context))
        args = ["-I", "-S", str(_HOOK), str(self._folder / _RULES), digest_of(rules.encode())]
        hook = {"type": "command", "command": sys.executable, "args": args, "timeout": _SECONDS}
        plain = not patterns and decision is not None and decision.tool.replace("_", "").isalnum()
        matcher = decision.tool if plain and decision is not None else "*"
        hooks = {"hooks": {"PreToolUse": [{"matcher": matcher, "hooks": [hook]}]}}
        try:
            self._write(".claude-plugin/plugin.json", json.dumps({"name": PLUGIN, "version": "1.0.0"}))
            self._write("hooks/hooks.json", json.dumps(hooks))
            self._write(_RULES, rules)
            if self._settings:
                self._write(_KEPT_SETTINGS, self._settings)
        except OSError:
            self.remove()
            raise

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def added_to(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The command with the plugin."""
        plugin = f"--plugin-dir={self._folder}"
        if not self._settings:
            return (argv[0], plugin, *argv[1:])
        program, *others = without_settings(argv)[0]
        return (program, plugin, f"--settings={self._folder / _KEPT_SETTINGS}", *others)

    def remove(self) -> None:
        """Take its files away."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _settings_for(order: LaunchSpec) -> str:
    """The settings that a command names, with hooks on; `OSError` if they are in a file that cannot be read."""
    named = without_settings(order.argv)[1]
    if named and not named.lstrip().startswith("{"):
        with open(open_plain(Path(order.cwd, named).resolve()), "rb") as file:  # noqa: PTH123 - of a descriptor
            named = file.read(_SETTINGS_MOST).decode("utf-8", "replace")
    try:
        return with_hooks_on(named)
    except ValueError:
        raise OSError("the settings that its command names with --settings are no JSON object") from None
