"""The course of one `allswell run`: from what was typed to an exit code.

Putting us in front of a command must cost next to nothing: the warden starts while the engine is imported
(`running.py`), and what only a bad end needs is imported then.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shlex
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from allswell.app import watch_on
from allswell.domain.argv import command_of
from allswell.domain.claim import RUN_ROLE
from allswell.domain.duration import parse, show
from allswell.domain.names import AgentId, Millis, TaskId, Token
from allswell.domain.policy import Policy
from allswell.domain.receipt import End, Verification, told
from allswell.domain.submit import NAME_MAX
from allswell.domain.task import OPEN
from allswell.domain.verification import AfterCheck
from allswell.doors.cli.asked import Asked, Ran, Variables
from allswell.doors.cli.frame import Exit, Frame, remark
from allswell.doors.cli.render import plain
from allswell.doors.cli.screen import Screen
from allswell.doors.cli.verifying import tell_verified
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.runtime.attempt import (
    Attempt,
    AttemptLimits,
    Flight,
    Home,
    Order,
    Outcome,
    Tries,
    give_back,
    order_for,
    settle_left,
    take_off,
)
from allswell.runtime.attempt.fed import Fed
from allswell.runtime.attempt.flight import FlightFile
from allswell.runtime.warden import find_program, held_back
from allswell.timing.clock import SystemClock

if TYPE_CHECKING:
    from allswell.doors.cli.terminal import Terminal
    from allswell.runtime.worktree import Worktree

GRACE = 10_000
IDLE = 300_000
"""Milliseconds without proof of progress after which a command is ended, where neither flag nor setting says so."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TAIL = 60


class Course:
    """One `allswell run`."""

    def __init__(
        self,
        frame: Frame,
        command: Sequence[str],
        *,
        timeout: str | None,
        idle: str | None,
        retries: int | None,
        grace: str | None,
        name: str | None,
        worktree: bool,
        variables: Variables,
        clean: bool,
        stdin: int | None,
        resume: str | None,
        verify: str | None = None,
        terminal: Terminal | None = None,
    ) -> None:
        self._frame = frame
        self._variables = variables
        self._stdin = stdin
        self._terminal = terminal
        self._name = name
        self._worktree = worktree
        self._resume = resume
        self._home = Home(frame.home)
        self._screen = Screen(silent=frame.json, painting=terminal is None)
        self._clock = SystemClock()
        self._signal: int | None = None
        self._tree: Worktree | None = None
        given = {"timeout": timeout, "idle": idle, "retries": retries, "grace": grace, "verify": verify}
        self._flags = [name for name, value in given.items() if value is not None]
        policies = frame.settings.policies()
        self._policy = policies.get(RUN_ROLE, policies.get("", Policy()))
        limit = self._policy.timeout if timeout is None else parse(timeout, where="--timeout")
        self._asked = Asked(
            tuple(command),
            str(Path.cwd()) if resume is None else "",
            limit,
            self._idle(idle, limit),
            GRACE if grace is None else parse(grace, where="--grace"),
            retries or 0,
            variables.names,
            clean,
            self._policy.verify if verify is None else command_of(verify, "--verify"),
        )
        self._checked: Order | None = None
        if resume is None:
            self._checked = self._order(self._asked)
            _check_verify(self._asked.verify, self._checked)

    def _idle(self, given: str | None, limit: int) -> int | None:
        if given is not None:
            length = 0 if given == "off" else parse(given, where="--idle")
            if length > limit:
                text = f"--idle ({given}) is longer than the limit of the attempt, so it could never count"
                raise Refused("bad_duration", text, where="--idle")
            return length or None
        if self._terminal is not None:  # somebody sits before it, who may think
            return None
        usual = self._policy.idle or IDLE
        return usual if usual < limit else None

    def _order(self, asked: Asked, cwd: Path | None = None) -> Order:
        place = cwd or Path(asked.cwd)
        order = order_for(
            asked.command,
            cwd=place,
            env=self._variables.values,
            hand_on=asked.handed_on,
            limits=AttemptLimits(asked.timeout, asked.idle, asked.grace),
            folder=place,
        )
        # Never the store's address or our own settings, whatever pattern was given.
        env = {name: value for name, value in order.env.items() if not name.startswith("ALLSWELL_")}
        store = self._frame.database
        return replace(
            order,
            env=env,
            store=None if store is None else str(store),
            quota=self._frame.settings.quota(),
            echo=self._screen.echo,
            stdin=None if self._terminal is None else self._terminal.theirs,
            terminal=None if self._terminal is None else self._terminal.ours,
            keep_transcript=self._frame.json,
        )

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self) -> Ran:
        """Run it to its end; errors that keep it from beginning are raised."""
        gc.enable()
        gc.freeze()
        return asyncio.run(self._live())

    async def _live(self) -> Ran:
        with contextlib.suppress(OSError):
            self._home.make()
        settings = self._frame.settings
        async with watch_on(self._frame.url, pace=settings.pace(), policies=settings.policies()) as watch:
            await self._settle(watch)
            task, order, note = await (self._submit(watch) if self._resume is None else self._again(watch))
            ran = Ran(Exit.FINE, task, worktree=self._tree)
            resume = (f"allswell run --resume {task}" + (" --worktree" if self._worktree else ""),)
            await self._try(watch, task, replace(order, resume=resume), note, ran)
            if ran.untold is None:
                await watch.sweep_once()  # what follows for others shall not wait for the next visitor
            if (tree := ran.worktree) is not None and _is_over(ran):
                ran.worktree = None if await tree.remove_if_unused(tree.errands(order.env)) else tree
        return ran

    async def _submit(self, watch: Watch) -> tuple[TaskId, Order, FlightFile | None]:
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
        order = await self._placed(new.id, order)
        note = self._note(new.id, new.name, order)
        await watch.submit_prepared((new,))
        return new.id, order, note

    async def _placed(self, task: TaskId, order: Order) -> Order:
        """The order in a worktree of the task's own, if that is wanted: made before the task is, or refused with it."""
        if not self._worktree:
            return order
        from allswell.runtime.worktree import make_worktree

        place = Path(order.cwd)
        self._tree = await asyncio.to_thread(make_worktree, place, self._home.worktrees.absolute(), task)
        await self._tree.check_out(self._tree.errands(order.env))
        return self._order(self._asked, self._tree.inside(place))

    def _limits(self, asked: Asked) -> Policy:
        """The task's policy: its limit is ours, and nobody is asked for check-ins who cannot give any."""
        policy = self._policy
        most = max(policy.retry.max_attempts, asked.retries + 1)
        return msgspec.structs.replace(
            policy,
            timeout=asked.timeout,
            verify=asked.verify,
            idle=None,  # evidence that the store does not see counts too, so it is ours to judge
            checkpoint_interval=max(asked.timeout, policy.checkpoint_timeout + 1),
            timeout_escalation=max(policy.timeout_escalation, asked.retries + 1),
            retry=msgspec.structs.replace(policy.retry, retries=asked.retries, max_attempts=most),
        )

    def _note(self, task: TaskId, name: str, order: Order) -> FlightFile | None:
        """Note the first attempt before it is claimed: whenever we are killed, somebody will know."""
        flight = Flight(
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

    def _task_name(self, asked: Asked) -> str:
        if self._name is not None:
            return self._name
        line = plain(shlex.join([Path(asked.command[0]).name, *asked.command[1:]]))
        line = "".join(one if one.isprintable() else "?" for one in line)
        return line if len(line) <= _TAIL else f"{line[: min(_TAIL, NAME_MAX) - 1]}…"

    async def _again(self, watch: Watch) -> tuple[TaskId, Order, FlightFile | None]:
        """The command of an earlier task: as its next attempt while it is open, as a new task once it has ended."""
        from allswell.engine.finding import find_task

        task = await find_task(watch.views, self._resume or "")
        row = await watch.task(task)
        try:
            asked = msgspec.convert(await watch.payload(task), dict[str, Asked])["run"]
        except (msgspec.ValidationError, KeyError):
            raise Refused("not_a_run", f"{task} was not made by `allswell run`", where="--resume") from None
        self._asked = asked = self._with_flags(asked)
        order = self._checked = self._order(asked)
        if row is None or row.task.state != OPEN:
            self._name = self._name or (None if row is None else row.task.name)
            return await self._submit(watch)
        if row.waits:
            text = f"{row.task.name} waits for a human; `allswell why {task}` tells for what"
            raise Refused("not_ready", text, where="--resume")
        if "verify" in self._flags and asked.verify != row.task.spec.policy.verify:
            text = f"{row.task.name} keeps its own as long as it is open; leave --verify out, or cancel the task first"
            raise Refused("usage", text, where="--verify")
        if asked.timeout != row.task.timeout:
            if "timeout" in self._flags:
                text = f"{row.task.name} keeps its limit of {show(row.task.timeout)} as long as it is open"
                raise Refused("usage", f"--timeout: {text}; leave it out, or cancel the task first", where="--timeout")
            self._asked = asked = msgspec.structs.replace(asked, timeout=row.task.timeout)  # a human has raised it
            order = self._order(asked)
        return task, await self._placed(task, order), None

    def _with_flags(self, asked: Asked) -> Asked:
        """What was asked for then, with what is asked for now."""
        now = {name: getattr(self._asked, name) for name in self._flags}
        clean = asked.clean or self._asked.clean
        return msgspec.structs.replace(asked, **now, env=(*asked.env, *self._asked.env), clean=clean)

    async def _try(self, watch: Watch, task: TaskId, order: Order, note: FlightFile | None, ran: Ran) -> None:
        retries, agent = self._asked.retries, self._agent
        fed = None if self._stdin is None else Fed(self._stdin, again=retries > 0 or bool(self._asked.verify))
        tries = Tries(
            watch, self._home, agent=agent, retries=retries, fed=fed, began=self._began, verified=self._verified
        )
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._interrupted, tries, number)
        quiet = self._frame.json or self._terminal is not None
        painting = None if quiet else asyncio.ensure_future(self._paint(tries))
        try:
            ran.outcome = await tries.run(task, order, note)
        finally:
            if painting is not None:
                painting.cancel()
            if self._terminal is not None:
                self._terminal.close()
            if fed is not None:
                fed.close()
            self._screen.clear()
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

    def _began(self, attempt: Attempt) -> None:
        attempt.verifying.on_begin = self._verifies
        if self._terminal is not None:
            attempt.on_start = self._terminal.begin

    def _verifies(self, command: Sequence[str]) -> None:
        self._screen.clear()
        if not self._frame.json:
            remark(f"allswell: it says done; verifying: {plain(shlex.join(command))}")

    def _verified(self, came: Verification, followed: AfterCheck) -> None:
        self._screen.clear()
        if not self._frame.json:
            tell_verified(self._frame, came, followed)

    def _interrupted(self, tries: Tries, number: int) -> None:
        self._signal = self._signal or number
        tries.stop(f"{signal.Signals(number).name} came")

    async def _paint(self, tries: Tries) -> None:
        while True:
            await asyncio.sleep(1)
            if tries.attempt is not None:
                self._screen.show(tries.attempt, self._clock.monotonic())

    def _code(self, outcome: Outcome | None, *, asked: bool) -> int:
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
                remark(f"allswell: {plain(told(left.receipt))} `allswell show {left.receipt.id}` tells more.")
            elif left.path is not None:
                left.path.unlink(missing_ok=True)
            left.clear()

    @property
    def retries(self) -> int:
        """How often it is tried again."""
        return self._asked.retries


def _check_verify(command: tuple[str, ...], order: Order) -> None:
    """Refuse what could never be run; what is named by a path may still be made."""
    if command and "/" not in command[0]:
        try:
            find_program(command[0], order.cwd, order.env)
        except Refused as error:
            raise Refused(error.code, f"--verify: {error.message}", where="--verify") from None


def _is_over(ran: Ran) -> bool:
    """Whether nothing of the attempt is left that could still want its worktree."""
    return ran.outcome is not None and ran.outcome.result is not None and not ran.outcome.result.survivors
