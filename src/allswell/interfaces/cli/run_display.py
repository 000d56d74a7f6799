"""What somebody sees of a command that runs: its own output, unchanged, and at a terminal a line on how it stands.

Output comes from one thread for each stream, the line from the event loop; a lock keeps them apart, so that a line of
ours never stands inside one of the command's. Where standard error is no terminal, there is no such line; only that the
work is being kept is said there, once, where that takes long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.conversation import LogEntry, LogKind, entries
from allswell.domain.agents.evidence import Silence
from allswell.domain.agents.output import LONGEST_LINE, parse
from allswell.domain.agents.status import blocks
from allswell.domain.duration import felt
from allswell.domain.receipts.receipt import NOT_WRITTEN, End, Receipt, are_changes_untold, how, left_running
from allswell.domain.rules.event import Event
from allswell.domain.service.retry import ErrorClass
from allswell.domain.service.service import shut
from allswell.errors import AllswellError, Refused
from allswell.interfaces.cli.context import CliContext, remark
from allswell.interfaces.cli.rendering import columns, cut, plain, short, typed_here
from allswell.runtime.workspace.files import write_all

if TYPE_CHECKING:
    from allswell.engine.watch import Watch
    from allswell.interfaces.cli.commands.run import RunOutcome
    from allswell.interfaces.cli.terminal import Terminal
    from allswell.interfaces.notifications.sink import Sink
    from allswell.runtime.attempt import AttemptRunner, RetryLoop
    from allswell.runtime.workspace.folder_snapshot import Progress
    from allswell.timing.clock import Clock


_CLEAR = b"\r\x1b[K"
_WORTH_A_LINE = 3
"""Seconds of keeping after which that is said where there is no terminal."""


class ProtocolView:
    """What an agent prints, as `allswell logs` shows it; what is no protocol passes as it is, at once.

    Of a message that comes in pieces each line is shown once it is whole.
    """

    def __init__(self) -> None:
        self._rest = b""
        """The beginning of a line that may be one of a protocol."""
        self._within = False
        """Whether what comes next stands within a line that has been passed on."""
        self._message = ""
        """The last line of a message that comes in pieces, as far as it has come."""

    def shown(self, piece: bytes) -> bytes:
        """What is to be shown now."""
        data, self._rest = self._rest + piece, b""
        out = []
        while data:
            end = data.find(b"\n")
            if not self._within and data.startswith(b"{"):
                if end < 0 and len(data) <= LONGEST_LINE:
                    self._rest = data
                    break
                out.append(self._readable(data[: end + 1]) if end >= 0 else self._message_end() + data)
            else:
                out.append(self._message_end() + (data[: end + 1] if end >= 0 else data))
            self._within = end < 0
            data = data[end + 1 :] if end >= 0 else b""
        return b"".join(out)

    def rest(self) -> bytes:
        """What was held back, once nothing more comes."""
        rest, self._rest = self._message_end() + self._rest, b""
        return rest

    def _readable(self, line: bytes) -> bytes:
        """A line of a protocol as people read it, nothing where it says nothing to them; any other line as it is."""
        line = line.rstrip(b"\n")
        if not parse(line).dialect:
            return self._message_end() + line + b"\n"
        return b"".join(map(self._shown_entry, entries(line)))

    def _shown_entry(self, entry: LogEntry) -> bytes:
        if not entry.piece:
            return self._message_end() + _in_words(entry)
        whole, ended, self._message = f"{self._message}{entry.text}".rpartition("\n")
        shown = _in_words(replace(entry, text=f"{whole}\n")) if ended else b""
        return shown if len(self._message) <= LONGEST_LINE else shown + self._message_end()

    def _message_end(self) -> bytes:
        """What was held back of a message, now that something else follows it."""
        text, self._message = self._message, ""
        return _in_words(LogEntry(LogKind.MESSAGE, text)) if text else b""


def _in_words(entry: LogEntry) -> bytes:
    from allswell.interfaces.cli.commands.logs import entry_text
    from allswell.views.log import LogShape

    return f"{entry_text(LogShape.of(entry, '', 0, 'stdout'))}\n".encode()


class Screen:
    """Standard output and standard error, shared by a command and by us."""

    def __init__(self, *, silent: bool, terminal: Terminal | None = None, raw: bool = False) -> None:
        self._silent = silent
        readable = not raw and not silent and terminal is None and sys.stdout.isatty()
        self._view = ProtocolView() if readable else None
        """Makes lines of a protocol readable at a terminal; a pipe gets them as they are."""
        self._terminal = terminal
        """Where the command has our terminal, nothing of ours is painted into it."""
        self._lock = threading.Lock()
        self._line = b""
        """The status line as it stands at the bottom; empty if there is none."""
        self._at_start = True
        """Whether what was last written to a terminal ended its line."""
        self._seconds = 0
        """How often in a row its work was being kept when we looked."""
        self.live = not silent and terminal is None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        sys.stdout.flush()
        sys.stderr.flush()

    def echo(self, stream: int, piece: bytes) -> None:
        """Pass on what the command printed; in the stream's own thread."""
        if self._silent:
            return
        if stream == 1 and self._view is not None:
            piece = self._view.shown(piece)
            if not piece:
                return
        if not self.live:
            write_all(stream, piece)
            if self._terminal is not None:
                self._terminal.printed(piece)
            return
        with self._lock:
            if os.isatty(stream):
                self._wipe()
                self._at_start = piece.endswith(b"\n")
            write_all(stream, piece)

    def show(self, attempt: AttemptRunner, now: int) -> None:
        """Paint the line: elapsed, left, the last proof of progress; or how far its work has been kept."""
        keeping = None if attempt.keeping is None else attempt.keeping.busy
        self._seconds = 0 if keeping is None else self._seconds + 1
        if keeping is not None and self._seconds == _WORTH_A_LINE and not self.live:
            _write_if_taken(f"allswell: {_kept(keeping)}; the command is paused meanwhile\n".encode())
        if not self.live:
            return
        standing = attempt.standing
        last = standing.progress
        proof = "no sign of progress yet" if last is None else f"{short(now - last.at)} ago: {plain(last.what)}"
        if attempt.doing:
            proof = plain(attempt.doing)
        if standing.refusal is not None:
            proof = f"waiting for the provider: {standing.refusal.words}"
        left = "no limit" if attempt.remaining is None else f"{short(attempt.remaining)} left"
        text = f"⏱ {short(now - standing.began)}  ·  {left}  ·  {proof}"
        if keeping is not None:
            text = f"⏱ {_kept(keeping)}"
        with self._lock:
            if self._at_start:  # never behind an unfinished line of the command's
                self._line = cut(text, (columns(sys.stderr) or 80) - 1).encode()
                write_all(2, _CLEAR + b"\x1b[2m" + self._line + b"\x1b[0m")

    def finish(self) -> None:
        """The command has ended: show what was held back, and take the line away for good."""
        rest = b"" if self._view is None else self._view.rest()
        if rest:
            write_all(1, rest)
        self.clear()

    def say(self, lines: Sequence[str]) -> None:
        """Lines of our own among those of the command, on standard error, unless nobody takes them."""
        self.clear()
        _write_if_taken("".join(f"{line}\n" for line in lines).encode())

    def clear(self) -> None:
        """Take the line away for good."""
        with self._lock:
            self._wipe()
            if self.live and not self._at_start:
                write_all(2, b"\n")
                self._at_start = True

    def _wipe(self) -> None:
        if self._line:
            self._line = b""
            write_all(2, _CLEAR)


def _kept(keeping: Progress) -> str:
    """How far the work of an attempt has been kept."""
    return f"keeping its work: {keeping.done / 1e6:,.0f} of {keeping.total / 1e6:,.0f} MB"


def _write_if_taken(line: bytes) -> None:
    """A short line on standard error, unless nobody takes it: then the end of the tree must not wait for that."""
    if select.select([], [2], [], 0)[1]:
        write_all(2, line)


# What is said of a command under `allswell run` while it runs: that it is silent, and that its provider refuses it.
#
# Nothing is ended for either. That a command has shown no sign of progress for a while is said in one line, and as an
# alert: the journal has it (`run_silent`), so that a supervisor that tells the sinks tells of it; where alerts are set
# up and no other process follows the journal for them, this one does, from the first silence to its end.
#
# An agent whose provider refuses tries again by itself, for minutes. That is said in one line as well, and noted in the
# store, so that `agents`, `why` and the page show it.

_LOOK = 1.0
"""Seconds between two looks, at least."""
_REFUSED_LOOK = 0.5
"""Seconds between two looks whether the provider refuses; what is over sooner need not be told."""


class SilenceReporter:
    """Tells of the silence of one command; `say` puts a sentence, and what to type, among what the command prints."""

    def __init__(self, context: CliContext, watch: Watch, clock: Clock, say: Callable[..., None]) -> None:
        self._context = context
        self._watch = watch
        self._clock = clock
        self._say = say
        self._alerting: asyncio.Future[None] | None = None

    async def run(self, tries: RetryLoop, idle: int | None) -> None:
        """Look now and then, until cancelled; what is ended as idle sooner than it is silent needs no telling."""
        after = self._context.settings.value("run_silence")
        if not isinstance(after, int) or (idle is not None and idle <= after):
            return
        watched, silence = None, Silence(after)
        try:
            while True:
                attempt = tries.attempt
                if attempt is not watched:  # another try begins anew
                    watched, silence = attempt, Silence(after)
                now = self._clock.monotonic()
                if attempt is not None and (length := silence.to_tell(attempt.standing, now)) is not None:
                    await self._tell(attempt, length)
                due = now if attempt is None else silence.due_at(attempt.standing)
                await asyncio.sleep(max((due - now) / 1_000, _LOOK) if attempt is not None else _LOOK)
        finally:
            if self._alerting is not None:
                self._alerting.cancel()
                await asyncio.gather(self._alerting, return_exceptions=True)

    async def _tell(self, attempt: AttemptRunner, length: int) -> None:
        lease, printed = attempt.lease, attempt.printed_since
        look, stop = typed_here(f"allswell logs {lease.task}"), typed_here(f"allswell cancel {lease.task}")
        self._say(
            f"allswell: no sign of progress for {felt(length)}, and {plain(printed)}; it goes on.",
            f"look: {look}",
            f"stop it: Ctrl-C, or {stop}",
        )
        alerts = self._alerts()
        with contextlib.suppress(AllswellError):  # a store that is away keeps no command from going on
            if alerts and self._alerting is None:
                from allswell.interfaces.notifications.follower import begin_sinks, run_sinks

                await begin_sinks(self._watch, alerts)
                self._alerting = asyncio.ensure_future(run_sinks(self._watch, alerts))
            data = {"silent_ms": length, "printed": printed}
            await self._watch.notice(Event("run_silent", lease.task, lease.run, lease.agent, lease.token, data))

    def _alerts(self) -> list[Sink]:
        """The alerts that are set up, the first time; what is wrong with one is said, and the command goes on."""
        if self._alerting is not None or not self._context.settings.told:
            return []
        from allswell.interfaces.notifications.follower import make_sink

        made: list[Sink] = []
        try:
            specs = [spec for spec in self._context.settings.sinks.values() if spec.kind == "alerts"]
        except Refused as error:
            self._say(f"allswell: no alert was sent: {plain(error.message)}")
            return []
        origin = None if self._context.is_agents else self._context.settings.public_origin  # no agent signs a link
        for spec in specs:
            try:
                made.append(make_sink(spec, origin=origin))
            except Refused as error:
                self._say(f"allswell: the sink {plain(spec.name)} gets no messages: {plain(error.message)}")
        return made


class RefusalReporter:
    """Tells that the provider of one command refuses it, or that it repeats itself.

    `say` puts a sentence among what the command prints.
    """

    def __init__(
        self, context: CliContext, watch: Watch, account: str, say: Callable[..., None], *, has_terminal: bool = False
    ) -> None:
        self._context = context
        self._watch = watch
        self._has_terminal = has_terminal
        """Whether the command has our terminal: then nothing is said into it while it runs."""
        self._account = account
        """Of the agent that it was started as, if it was: others that use it wait, too."""
        self._say = say

    async def run(self, tries: RetryLoop) -> None:
        """Look now and then, until cancelled."""
        watched, told, circling = None, None, False
        while True:
            attempt = tries.attempt
            if attempt is not watched:
                watched, told, circling = attempt, None, False
            if attempt is not None and bool(attempt.standing.repeats) != circling:
                circling = not circling
                await self._tell_of_circle(attempt)
            if attempt is not None and (refusal := attempt.standing.refusal) != told:
                last = refusal is not None and refusal.attempt is not None and refusal.attempt == refusal.attempts
                if refusal is not None and told is None and not last and not self._has_terminal:
                    self._say(f"allswell: waiting for the provider: {plain(refusal.words)}; it tries again by itself.")
                told = refusal
                with contextlib.suppress(AllswellError):  # a store that is away keeps no command from going on
                    await attempt.lease.note_refusal("" if refusal is None else refusal.words)
                    if refusal is not None and refusal.error is ErrorClass.RATE_LIMIT and self._account:
                        pause = self._context.settings.policy_for("").retry.retry_after_default
                        await self._watch.park(self._account, max(refusal.delay or 0, pause))
            await asyncio.sleep(_REFUSED_LOOK)

    async def _tell_of_circle(self, attempt: AttemptRunner) -> None:
        """Say that the agent goes round in a circle; that it does so no more is only noted."""
        words = attempt.standing.repeats
        if words and not self._has_terminal:
            self._say(f"allswell: it repeats itself: {plain(words)}; that does not count as progress.")
        with contextlib.suppress(AllswellError):
            await attempt.lease.note_repeats(words)

    async def tell_parked(self) -> None:
        """Say that the account is parked or refused, where it is: a person who types a command has it tried."""
        if not self._account:
            return
        from allswell.engine.status.services import in_short

        service, now = (await self._watch.views.view_services()).get(self._account), await self._watch.now()
        if service is not None and shut(service, now) is not None:
            stands = f"account {plain(self._account)} {plain(in_short(service, now))}"
            self._say(f"allswell: {stands}; this command is tried all the same.")


# How the end of a command is told: the cause, the last line it printed, and one command to type next.
#
# Who reads it has the command's own output above it, and wants to know three things. A failure that changed nothing
# needs no more than the first of them; all the rest is in the receipt, one `allswell show` away.

_BY_ITSELF = (End.FAILED, End.SIGNALLED, End.LOST, End.NOT_STARTED)
_CAN_GO_ON = (End.TIMEOUT, End.IDLE, End.STALLED, End.INTERRUPTED, End.ORPHANED, End.RELEASED)
_NAMED = 12
"""Variables that are named."""
_LONGEST = 200
"""Characters of a line that are repeated."""


def tell(context: CliContext, ran: RunOutcome, retries: int) -> None:
    """What happened, if it is worth a word; with --json, all of it as a document."""
    outcome = ran.outcome
    if context.json:
        from allswell.views.attempt import RanShape

        place = None if ran.worktree is None else str(ran.worktree.path)
        context.say(RanShape.of(outcome, ran.task, ran.state, ran.attempts, int(ran.code), place))
        return
    receipt = None if outcome is None else outcome.receipt
    warnings = () if outcome is None else outcome.warnings
    if receipt is not None and receipt.status is not End.DONE:
        first, *more = end_lines(receipt, attempts=ran.attempts, retries=retries, asked=ran.asked)
        remark(f"allswell: {first}")
        for line in more:
            what, sign, typed = line.partition(": ")
            remark(f"{what}{sign}{typed_here(typed)}")
        warnings = receipt.warnings
    if outcome is not None and outcome.survivors is not None:
        warnings = (*warnings, blocks(outcome.survivors))
    if ran.held_back:
        named = ", ".join(ran.held_back[:_NAMED]) + (", …" if len(ran.held_back) > _NAMED else "")
        warnings = (*warnings, f"--clean-env kept back: {named} (-e NAME hands one on)")
    if ran.starved:
        warnings = (*warnings, "its input was too long to be kept for a retry")
    if ran.untold is not None:
        warnings = (*warnings, f"the store does not know yet how it ended: {ran.untold}")
    if ran.worktree is not None:
        warnings = (*warnings, f"the worktree {ran.worktree.path} is kept, on the branch {ran.worktree.branch}")
    for warning in warnings:
        remark(f"allswell: {plain(warning)}")


def end_lines(receipt: Receipt, *, attempts: int, retries: int, asked: bool) -> list[str]:
    """The end of a command, for whoever sat before it; `asked`: a human has to decide now."""
    lines = [_cause(receipt, attempts, retries, asked=asked)]
    if receipt.status in _BY_ITSELF and not receipt.files and not are_changes_untold(receipt) and not asked:
        return lines
    # What failed a verification was shown then, and a verdict of idleness quotes the last line itself.
    said = "" if receipt.status in (End.UNVERIFIED, End.IDLE) else last_line(receipt)
    if said and not _is_in(said, lines[0]):
        lines.append(f"  it said: {said}")
    return [*lines, *(f"  {line}" for line in _next(receipt, asked=asked))]


def _is_in(said: str, cause: str) -> bool:
    """Whether the cause quotes what was said last: an agent's own line of its protocol does not differ from that."""
    if said.startswith("{"):
        try:
            told = msgspec.json.decode(said)
        except msgspec.DecodeError:
            return said.removesuffix("…") in cause
        said = told["message"] if isinstance(told, dict) and isinstance(told.get("message"), str) else said
    return said.removesuffix("…") in cause


def last_line(receipt: Receipt) -> str:
    """The last line that it printed on its standard error; where that was none, on its standard output."""
    return (last_lines(receipt, 1) or [""])[0]


def last_lines(receipt: Receipt, most: int) -> list[str]:
    """The last lines that it printed on the stream on which errors are told, if it printed any there."""
    from allswell.runtime.attempt.output import last_said

    return [cut(plain(line), _LONGEST) for line in last_said(receipt, most)]


def _cause(receipt: Receipt, attempts: int, retries: int, *, asked: bool) -> str:
    said = [f"{plain(receipt.name)} {how(receipt)} after {felt(receipt.elapsed_ms)}: {plain(receipt.reason)}"]
    if receipt.status in _BY_ITSELF:
        more = "" if asked else "no retries asked for"  # a human decides about that
        said.append(more if not retries else f"tried {attempts} times" if attempts > 1 else "")
    elif receipt.status in _CAN_GO_ON:
        said.append(_progress(receipt))
    said += [plain(left_running(receipt)), kept(receipt)]
    return "; ".join(part for part in said if part)


def _progress(receipt: Receipt) -> str:
    last, ago = receipt.last_evidence, receipt.last_evidence_ms
    if last is None or ago is None:
        return "" if receipt.status is End.IDLE else "it had shown no sign of progress"
    return f"the last sign of progress was {felt(ago)} before: {plain(last.what)}"


def kept(receipt: Receipt) -> str:
    """What an attempt changed, and that it is kept; nothing where that cannot be told."""
    snapshot, count = receipt.snapshot, receipt.files
    if snapshot is None:
        return ""
    if not count and not are_changes_untold(receipt):
        return "it changed no file"
    part = "" if snapshot.whole else f" ({len(snapshot.left_out)} left out, {len(snapshot.torn)} incomplete)"
    files = f"{count} file{'' if count == 1 else 's'} changed, " if count else "its work is "
    return f"{files}kept in {plain(snapshot.name)}{part}"


def _next(receipt: Receipt, *, asked: bool) -> list[str]:
    """The one thing to type next; none where there is nothing to look at."""
    if asked:
        return ["answer: allswell questions"]
    resume = [line for line in receipt.advice.resume if line.startswith("allswell ")]
    if receipt.status in _CAN_GO_ON and resume:
        without = " --idle off" if receipt.status is End.IDLE else ""
        return [f"go on: {resume[0]}{without}"]
    return [] if any(one.startswith(NOT_WRITTEN) for one in receipt.warnings) else [f"more: allswell show {receipt.id}"]
