"""The course of one `allswell run`: from what was typed to an exit code.

Putting us in front of a command must cost next to nothing: the warden starts while the engine is imported
(`commands/run.py`), and what only a bad end needs is imported then.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from allswell.app import watch_on
from allswell.domain.agents.fleet import own_variables
from allswell.domain.agents.status import Survivor, named
from allswell.domain.duration import LONGEST, parse, show
from allswell.domain.ids import AgentId, Millis, TaskId, Token, file_name
from allswell.domain.lease.claim import RUN_ROLE
from allswell.domain.lease.verification import AfterCheck
from allswell.domain.receipts.receipt import End, Verification, told
from allswell.domain.scopes import VARIABLE as DEADLINE
from allswell.domain.task.model import OPEN, CarriedHistory, Policy, TaskHistory
from allswell.domain.task.submit import NAME_MAX
from allswell.domain.values import CommandManner, command_of, manner_of
from allswell.engine.lookup import find_task
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.interfaces.cli.commands.run import RunOutcome, RunPayload, Variables, agent_called
from allswell.interfaces.cli.commands.verify import tell_verified
from allswell.interfaces.cli.context import CliContext, Exit, remark
from allswell.interfaces.cli.job_control import Stopping
from allswell.interfaces.cli.rendering import columns, plain, wrapped
from allswell.interfaces.cli.run_display import RefusalReporter, Screen, SilenceReporter
from allswell.runtime.attempt import (
    AttemptLimits,
    AttemptOutcome,
    AttemptRunner,
    InFlightRecord,
    RetryLoop,
    give_back,
    order_for,
    settle_left,
    take_off,
)
from allswell.runtime.attempt.launch import LaunchSpec, ReplayableStdin
from allswell.runtime.attempt.orphans import check_folder, reconcile
from allswell.runtime.attempt.record import FlightFile, work_folder
from allswell.runtime.process import find_program, held_back
from allswell.runtime.receipts import StateDir
from allswell.timing.clock import PausableClock, SystemClock

if TYPE_CHECKING:
    from allswell.interfaces.cli.terminal import Terminal
    from allswell.runtime.workspace.worktree import Worktree

GRACE = 10_000
OFF = "off"
"""What is typed for no limit."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TAIL = 60
_MOMENT = 1.0
"""Seconds after which it is said that background processes are waited for."""


class RunSession:
    """One `allswell run`."""

    def __init__(
        self,
        context: CliContext,
        command: Sequence[str],
        *,
        timeout: str | None,
        idle: str | None,
        retries: int | None,
        grace: str | None,
        keep_children: bool,
        name: str | None,
        worktree: bool,
        variables: Variables,
        clean: bool,
        stdin: int | None,
        resume: str | None,
        verify: str | None = None,
        agent: str | None = None,
        terminal: Terminal | None = None,
        interactive: bool = False,
        raw: bool = False,
    ) -> None:
        self._context = context
        self._variables = variables
        self._spec = None if agent is None else agent_called(context, agent)
        """The agent of the settings that it is started as."""
        self._stdin = stdin
        self._command = command
        self._terminal = terminal
        self._interactive = interactive
        self._raw = raw
        self._name = name
        self._worktree = worktree or (self._spec is not None and self._spec.worktree)
        self._resume = resume
        self._home = StateDir(context.home)
        self._choose_screen(command)
        self._clock = PausableClock(SystemClock())
        self._stopping: Stopping | None = None
        self._signal: int | None = None
        self._keep_children = keep_children
        self._waiting: asyncio.TimerHandle | None = None
        """Says that background processes are waited for, once that has taken a moment."""
        self._tree: Worktree | None = None
        given = {"timeout": timeout, "idle": idle, "retries": retries, "grace": grace, "verify": verify}
        self._flags = [name for name, value in given.items() if value is not None]
        policies = context.settings.policies()
        self._policy = policies.get(RUN_ROLE, policies.get("", Policy()))
        limit = self._timeout(timeout)
        usual_grace = GRACE if self._spec is None else self._spec.grace
        self._asked = RunPayload(
            tuple(command),
            str(Path.cwd()) if resume is None else "",
            limit,
            self._idle(idle, limit),
            usual_grace if grace is None else parse(grace, where="--grace"),
            retries or 0,
            variables.names,
            clean,
            self._policy.verify if verify is None else command_of(verify, "--verify"),
            agent or "",
        )
        self._checked: LaunchSpec | None = None
        self._earlier: TaskId | None = None
        """The ended task whose command is run once more."""
        if resume is None:
            self._checked = self._order(self._asked)
            _check_verify(self._asked.verify, self._checked)

    def _choose_screen(self, command: Sequence[str]) -> None:
        """Whether the command has our terminal; an agent that works for one prompt has not, unless that was asked for.

        It would read from it, as well: codex waits for the end of its standard input. And a terminal has one stream, so
        that what it says on standard error would stand between the lines of its protocol.
        """
        if manner_of(command) is CommandManner.ONE_PROMPT and not self._interactive:
            self._terminal = None
        self._screen = Screen(silent=self._context.json, terminal=self._terminal, raw=self._raw)

    def _timeout(self, given: str | None) -> int | None:
        if given is not None:
            return None if given == OFF else parse(given, where="--timeout")
        settings, spec = self._context.settings, self._spec
        return settings.run_limit("timeout") if spec is None else settings.policy_for(spec.role or "").timeout

    def _idle(self, given: str | None, limit: int | None) -> int | None:
        if given is not None:
            length = 0 if given == OFF else parse(given, where="--idle")
            if limit is not None and length > limit:
                text = f"--idle ({given}) is longer than the limit of the attempt, so it could never count"
                raise Refused("bad_duration", text, where="--idle")
            return length or None
        if self._terminal is not None and (self._interactive or manner_of(self._command) is CommandManner.INTERACTIVE):
            return None  # somebody sits before it, who may think
        usual = self._usual_idle()
        return usual if usual is None or limit is None or usual < limit else None

    def _usual_idle(self) -> int | None:
        settings, spec = self._context.settings, self._spec
        if spec is None:
            return settings.run_limit("idle")
        return spec.idle if spec.idle is not None else settings.policy_for(spec.role or "").idle

    def _order(self, asked: RunPayload, cwd: Path | None = None) -> LaunchSpec:
        place, spec = cwd or Path(asked.cwd), self._spec
        settings = self._context.settings
        repeats = settings.repeat_limit if spec is None or spec.repeat_limit is None else spec.repeats
        order = order_for(
            asked.command,
            cwd=place,
            env={**({} if spec is None else own_variables(spec, str(place))), **self._variables.values},
            hand_on=(*asked.handed_on, *(() if spec is None else spec.pass_env)),
            limits=AttemptLimits(
                asked.timeout, asked.idle, asked.grace, repeats=repeats, longer_idle="--idle off, or longer"
            ),
            folder=place,
        )
        # Never the store's address or our own settings, whatever pattern was given.
        env = {name: value for name, value in order.env.items() if not name.startswith("ALLSWELL_")}
        if asked.timeout is None and DEADLINE in os.environ:  # that of the attempt in which we were typed
            env[DEADLINE] = os.environ[DEADLINE]
        store = self._context.database
        return replace(
            order,
            env=env,
            store=None if store is None else str(store),
            quota=self._context.settings.quota(),
            echo=self._screen.echo,
            follows=True,
            defer=() if spec is None else spec.defer,
            keep_transcript=self._context.json,
            keep_children=self._keep_children,
            agent=spec,
            earlier=self._earlier,
        )

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self) -> RunOutcome:
        """Run it to its end; errors that keep it from beginning are raised."""
        gc.enable()
        gc.freeze()
        return asyncio.run(self._live())

    async def _live(self) -> RunOutcome:
        with contextlib.suppress(OSError):
            self._home.make()
        settings = self._context.settings
        async with watch_on(self._context.url, pace=settings.pace(), policies=settings.policies()) as watch:
            await self._settle(watch)
            await self._check_folder(watch)
            task, order, note = await (self._submit(watch) if self._resume is None else self._again(watch))
            ran = RunOutcome(Exit.FINE, task, worktree=self._tree)
            self._say_limits()
            resume = (f"allswell run --resume {task}" + (" --worktree" if self._worktree else ""),)
            await self._try(watch, task, replace(order, resume=resume), note, ran)
            if ran.untold is None:
                await watch.sweep_once()  # what follows for others shall not wait for the next visitor
            if (tree := ran.worktree) is not None and _is_over(ran):
                ran.worktree = None if await tree.remove_if_unused(tree.errands(order.env, agent=order.argv)) else tree
        return ran

    async def _submit(
        self, watch: Watch, before: CarriedHistory | None = None
    ) -> tuple[TaskId, LaunchSpec, FlightFile | None]:
        asked, order = self._asked, self._checked
        assert order is not None  # noqa: S101 - checked when this was made
        (new,) = await watch.prepare(
            [
                {
                    "name": self._task_name(asked),
                    "role": RUN_ROLE,
                    "payload": {"run": asked},
                    "policy": self._limits(asked),
                }
            ]
        )
        order = await self._placed(new.id, new.name, order)
        note = self._note(new.id, new.name, order)
        await watch.submit_prepared((msgspec.structs.replace(new, carried=before),))
        return new.id, order, note

    async def _placed(self, task: TaskId, name: str, order: LaunchSpec) -> LaunchSpec:
        """The order in a worktree of the task's own, if that is wanted: made before the task is, or refused with it."""
        if not self._worktree:
            return order
        from allswell.runtime.workspace.worktree import LEADS_ELSEWHERE, make_worktree

        place = Path(order.cwd)
        self._tree = await asyncio.to_thread(
            make_worktree, place, self._home.worktrees.absolute(), file_name(task), name
        )
        await self._tree.check_out(self._tree.errands(order.env, agent=order.argv))
        setting = "ask" if self._spec is None else self._spec.ends_with_question
        order = self._order(self._asked, self._tree.inside(place))
        kept = self._variables.values  # what was asked for by name
        env = {name: value for name, value in order.env.items() if name in kept or name not in LEADS_ELSEWHERE}
        return replace(order, env=env, ends_with_question=setting)

    def _say_limits(self) -> None:
        """Say under which limits it is started as an agent: who typed that did not type them."""
        if self._spec is not None:
            limits = [f"limit {show(self._asked.timeout)}" if self._asked.timeout else "no limit"]
            limits += [f"idle {show(self._asked.idle)}"] if self._asked.idle else []
            self._context.remark(f"allswell: as {plain(self._spec.name)}: {', '.join(limits)}")

    def _limits(self, asked: RunPayload) -> Policy:
        """The task's policy: its limit is ours, and nobody is asked for check-ins who cannot give any."""
        policy = self._policy
        most = max(policy.retry.max_attempts, asked.retries + 1)
        return msgspec.structs.replace(
            policy,
            timeout=asked.timeout,
            verify=asked.verify,
            idle=None,  # evidence that the store does not see counts too, so it is ours to judge
            checkpoint_interval=LONGEST,
            timeout_escalation=max(policy.timeout_escalation, asked.retries + 1),
            retry=msgspec.structs.replace(policy.retry, retries=asked.retries, max_attempts=most),
        )

    def _note(self, task: TaskId, name: str, order: LaunchSpec) -> FlightFile | None:
        """Note the first attempt before it is claimed: whenever we are killed, somebody will know."""
        flight = InFlightRecord(
            task=task,
            name=name,
            attempt=1,
            token=Token(1),
            agent=AgentId(self._agent),
            argv=order.argv,
            cwd=order.cwd,
            began_at=Millis(self._clock.wall()),
            grace=order.limits.grace,
        )
        try:
            return take_off(self._home.attempts, flight)
        except OSError:
            return None

    @property
    def _agent(self) -> str:
        return f"run-{os.getpid()}"

    def _task_name(self, asked: RunPayload) -> str:
        if self._name is not None:
            return self._name
        line = plain(shlex.join([Path(asked.command[0]).name, *asked.command[1:]]))
        line = "".join(one if one.isprintable() else "?" for one in line)
        return line if len(line) <= _TAIL else f"{line[: min(_TAIL, NAME_MAX) - 1]}…"

    async def _again(self, watch: Watch) -> tuple[TaskId, LaunchSpec, FlightFile | None]:
        """The command of an earlier task: as its next attempt while it is open, as a new task once it has ended."""
        task = await find_task(watch.views, self._resume or "")
        row = await watch.task(task)
        try:
            asked = msgspec.convert(await watch.payload(task), dict[str, RunPayload])["run"]
        except (msgspec.ValidationError, KeyError):
            asked = None
        made = row is None or (row.task.role == RUN_ROLE and row.task.spec.origin is None)
        if asked is None or not made:  # a payload is the words of whoever hands a task over
            raise Refused("not_a_run", f"{task} was not made by `allswell run`", where="--resume")
        self._spec = agent_called(self._context, asked.agent) if asked.agent else None
        self._asked = asked = self._with_flags(asked)
        self._choose_screen(asked.command)
        self._earlier = task if row is None or row.task.state != OPEN else None
        order = self._checked = self._order(asked)
        if row is None or row.task.state != OPEN:
            self._name = self._name or (None if row is None else row.task.name)
            again = await self._submit(watch, None if row is None else _words_of(row.task.record))
            with contextlib.suppress(Refused):  # it is not told as failed any more: the new task stands for it
                await watch.dismiss(task, again[0])
            return again
        if row.waits:
            text = f"{row.task.name} waits for a human; see `allswell why {task}`"
            raise Refused("not_ready", text, where="--resume")
        if "verify" in self._flags and asked.verify != row.task.spec.policy.verify:
            text = (
                f"{row.task.name} keeps its own command while it is open; leave --verify out, or cancel the task first"
            )
            raise Refused("usage", text, where="--verify")
        if asked.timeout != row.task.timeout:
            if "timeout" in self._flags:
                limit = "no limit" if row.task.timeout is None else f"its limit of {show(row.task.timeout)}"
                text = f"{row.task.name} keeps {limit} while it is open"
                raise Refused("usage", f"--timeout: {text}; leave it out, or cancel the task first", where="--timeout")
            self._asked = asked = msgspec.structs.replace(asked, timeout=row.task.timeout)  # a human has raised it
            order = self._order(asked)
        return task, await self._placed(task, row.task.name, order), None

    def _with_flags(self, asked: RunPayload) -> RunPayload:
        """What was asked for then, with what is asked for now."""
        now = {name: getattr(self._asked, name) for name in self._flags}
        clean = asked.clean or self._asked.clean
        return msgspec.structs.replace(asked, **now, env=(*asked.env, *self._asked.env), clean=clean)

    async def _try(
        self, watch: Watch, task: TaskId, order: LaunchSpec, note: FlightFile | None, ran: RunOutcome
    ) -> None:
        retries, agent = self._asked.retries, self._agent
        fed = (
            None if self._stdin is None else ReplayableStdin(self._stdin, again=retries > 0 or bool(self._asked.verify))
        )
        tries = RetryLoop(
            watch,
            self._home,
            agent=agent,
            retries=retries,
            source=fed or self._terminal,
            began=self._began,
            verified=self._verified,
            tell=self._remark,
            clock=self._clock,
        )
        self._stopping = Stopping(
            self._clock,
            give_back=self._give_terminal_back,
            take_again=self._take_terminal_again,
            whole_group=self._terminal is not None,
            store=self._context.url,
        )
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._interrupted, tries, number)
        quiet = self._context.json or self._terminal is not None
        silence = SilenceReporter(self._context, watch, self._clock, self._say_beside)
        account = "" if self._spec is None else self._spec.limit_of()
        has_terminal = self._terminal is not None
        refusals = RefusalReporter(self._context, watch, account, self._say_beside, has_terminal=has_terminal)
        await refusals.tell_parked()
        beside = [
            asyncio.ensure_future(silence.run(tries, self._asked.idle)),
            asyncio.ensure_future(refusals.run(tries)),
        ]
        if not quiet:
            beside.append(asyncio.ensure_future(self._paint(tries)))
        try:
            ran.outcome = await tries.run(task, order, note)
        finally:
            self._stopping.end()
            if self._waiting is not None:
                self._waiting.cancel()
            for one in beside:
                one.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            if self._terminal is not None:
                self._terminal.end()
            if fed is not None:
                fed.close()
            self._screen.finish()
        if self._terminal is not None and not _is_silent(ran):
            self._terminal.start_line()
        ran.starved = tries.starved
        if self._asked.clean and ran.outcome is not None and ran.outcome.end is End.FAILED:
            ran.held_back = held_back(self._asked.handed_on)
        row = None if tries.untold is not None else await watch.task(task)
        ran.attempts = len(tries.outcomes)
        ran.untold = tries.untold
        ran.state = "" if row is None else row.task.state
        ran.asked = row is not None and any(one.kind == "question" for one in row.waits)
        ran.code = self._code(ran.outcome, asked=ran.asked)
        ran.error = None if ran.outcome is None else ran.outcome.error

    def _left(self, processes: Sequence[Survivor]) -> None:
        """The command has ended and others of it have not: say what is waited for, if that takes more than a moment."""
        text = (
            f"the command has ended; waiting up to {show(self._asked.grace)} for {named(processes)} in the background"
        )
        self._waiting = asyncio.get_running_loop().call_later(
            _MOMENT, self._say_waiting, f"{text} (--keep-children leaves what it started running)"
        )

    def _say_remark(self, text: str) -> None:
        """Something is to be said of how it is watched; where it has our terminal, it is said when it has ended."""
        if self._terminal is None:
            self._say_waiting(text)

    def _say_waiting(self, text: str) -> None:
        self._screen.clear()
        self._context.remark(f"allswell: {plain(text)}")

    def _began(self, attempt: AttemptRunner) -> None:
        if not self._keep_children:
            attempt.on_left = self._left
        attempt.on_remark = self._say_remark
        attempt.verifying.on_begin = self._verifies
        attempt.before_start, attempt.on_start = partial(self._starts, attempt), partial(self._started, attempt)
        if self._terminal is not None:
            self._terminal.on_interrupt = attempt.interrupted

    def _remark(self, text: str) -> None:
        self._screen.clear()
        if self._terminal is not None:
            self._terminal.give_back()
            self._terminal.start_line()
        self._context.remark(f"allswell: {plain(text)}")

    def _say_beside(self, text: str, *commands: str) -> None:
        """A sentence of ours among what the command prints; at a terminal, commands have lines of their own."""
        room = columns(sys.stderr)
        if room is None:
            lines = [" ".join([text, "; ".join(commands)]).strip()]
        else:
            first, *more = wrapped(text, room - 2)
            lines = [first, *(f"  {line}" for line in (*more, *commands))]
        if self._terminal is not None:
            self._terminal.say(lines)
        elif not self._context.json:
            self._screen.say(lines)

    def _starts(self, attempt: AttemptRunner) -> None:
        if self._stopping is not None:
            self._stopping.begin(attempt)
        if self._terminal is not None:
            self._terminal.take()

    def _started(self, attempt: AttemptRunner) -> None:
        if self._terminal is not None:
            self._terminal.let_go()
            if attempt.handle is not None:
                attempt.handle.on_exit = self._terminal.release_keys
        if self._stopping is not None:
            self._stopping.started(attempt)

    def _give_terminal_back(self) -> None:
        self._screen.clear()
        if self._terminal is not None:
            self._terminal.give_back()

    def _take_terminal_again(self) -> None:
        if self._terminal is not None:
            self._terminal.take_again()

    def _verifies(self, command: Sequence[str]) -> None:
        self._screen.clear()
        if self._stopping is not None:
            self._stopping.end()
        if self._terminal is not None:
            self._terminal.end()
            self._terminal.start_line()
        self._context.remark(f"allswell: it reports done; verifying: {plain(shlex.join(command))}")

    def _verified(self, came: Verification, followed: AfterCheck) -> None:
        self._screen.clear()
        tell_verified(self._context, came, followed)

    def _interrupted(self, tries: RetryLoop, number: int) -> None:
        self._signal = self._signal or number
        tries.stop(f"{signal.Signals(number).name} came")

    async def _paint(self, tries: RetryLoop) -> None:
        while True:
            await asyncio.sleep(1)
            if tries.attempt is not None:
                self._screen.show(tries.attempt, self._clock.monotonic())

    def _code(self, outcome: AttemptOutcome | None, *, asked: bool) -> int:
        if outcome is not None and outcome.end is End.INTERRUPTED and outcome.by_itself and self._signal is None:
            return outcome.exit_code or 128 + signal.SIGINT  # by Ctrl-C at a terminal of its own
        if outcome is None or outcome.end is End.INTERRUPTED:
            return 128 + (self._signal or signal.SIGTERM)
        if outcome.end in (End.TIMEOUT, End.IDLE):
            return Exit.TIMED_OUT
        if outcome.end in (End.LEASE_LOST, End.CANCELLED):
            return Exit.LEASE_LOST
        if outcome.end in (End.ASKED, End.COSTLY) or (asked and outcome.exit_code == 0):  # else it has its own
            return Exit.NEEDS_HUMAN
        if outcome.end is End.SIGNALLED and outcome.result is not None and outcome.result.signal is not None:
            return 128 + outcome.result.signal
        if outcome.end is End.LOST:  # its own is not known; what was left of it was killed
            return 128 + signal.SIGKILL
        return outcome.exit_code or (Exit.FINE if outcome.end is End.DONE else Exit.FAILED)

    # --- what a dead one left -----------------------------------------------------------------------------------------

    async def _settle(self, watch: Watch) -> None:
        if not self._home.attempts.is_dir() or not any(self._home.attempts.iterdir()):
            return
        for left in await settle_left(watch, self._home, lambda text: remark(f"allswell: {plain(text)}")):
            if await give_back(watch, left):
                remark(f"allswell: {plain(told(left.receipt))} `allswell show {left.receipt.id}` shows more.")
            elif left.path is not None:
                left.path.unlink(missing_ok=True)
            left.clear()

    async def _check_folder(self, watch: Watch) -> None:
        """Refuse to begin where processes of an earlier attempt still run, before there is a task."""
        if self._checked is None or self._worktree or not self._home.survivors.is_dir():
            return

        await reconcile(watch, self._home)
        check_folder(self._home, work_folder(self._checked.folder))

    @property
    def retries(self) -> int:
        """How often it is tried again."""
        return self._asked.retries


def _words_of(record: TaskHistory) -> CarriedHistory:
    """What a new task for the same command knows of the one that has ended; its own limit is typed."""
    return CarriedHistory(record.notes, record.handover, idle_override=record.idle_override)


def _check_verify(command: tuple[str, ...], order: LaunchSpec) -> None:
    """Refuse what could never be run; what is named by a path may still be made."""
    if command and "/" not in command[0]:
        try:
            find_program(command[0], order.cwd, order.env)
        except Refused as error:
            raise Refused(error.code, f"--verify: {error.message}", where="--verify") from None


def _is_silent(ran: RunOutcome) -> bool:
    """Whether nothing of ours follows what the command printed."""
    good = ran.outcome is not None and ran.outcome.ok and not ran.outcome.warnings
    return good and ran.worktree is None


def _is_over(ran: RunOutcome) -> bool:
    """Whether nothing of the attempt is left that could still want its worktree."""
    return ran.outcome is not None and ran.outcome.result is not None and not ran.outcome.result.survivors
