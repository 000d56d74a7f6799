"""Runs one attempt of a supervised agent by its command; async functions have the same interface (`function.py`)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence

import msgspec

from allswell.domain.agents.conversation import is_noise
from allswell.domain.agents.fleet import ACP_CLIENT, AgentSpec, fill, longer_idle, word_of
from allswell.domain.agents.quota import DEFAULT as QUOTA
from allswell.domain.agents.quota import Quota
from allswell.domain.receipts.receipt import End
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.engine.lease import Lease
from allswell.errors import Refused, Unavailable
from allswell.runtime.agents.function import FunctionRun, told_of
from allswell.runtime.attempt import (
    AttemptLimits,
    AttemptOutcome,
    AttemptRunner,
    SharedSampler,
    order_for,
)
from allswell.runtime.attempt.launch import PLACE, Brief, LaunchSpec, OutputListeners
from allswell.runtime.attempt.outcome import OutcomeReport
from allswell.runtime.receipts import StateDir
from allswell.runtime.workspace.files import rewrite_file, write_file
from allswell.timing.clock import SystemClock

# The placeholders of the command are filled in, and it runs under the warden; its output is read, and it can be asked.
#
# A sync function of Python is a command, too: it is called in a process of its own, so that it can be killed.

CALLED = ("-P", "-m", "allswell.runtime.agents.called")  # -P: no package of the folder is taken for ours
_TAIL = 2_000
"""Bytes of the end of its output that go into the reason of a failure."""
_ARGUMENT_MOST = 128 * 1024 - 1
"""Length in bytes that the kernel accepts for one argument."""


PROMPT = "ALLSWELL_PROMPT"
"""The variable that names the file with the prompt."""


def order_of(
    spec: AgentSpec, argv: Sequence[str], places: Mapping[str, str], more: Mapping[str, str] = {}
) -> LaunchSpec:
    """The launch spec of an agent's command, or `Refused`; `more` are further environment variables."""
    words = [word_of(word, places, after_dashes="--" in argv[:number]) for number, word in enumerate(argv)]
    for word in words:
        if len(os.fsencode(word)) > _ARGUMENT_MOST:
            text = f"the prompt has {len(os.fsencode(word)):,} bytes, and an argument at most {_ARGUMENT_MOST:,}"
            raise Refused("bad_command", f"{text}; let the command read {{prompt_file}}", where="command")
    folder, env = places["folder"], {name: fill(value, places) for name, value in spec.env.items()}
    if spec.acp:
        order_for(words, cwd=folder, env=env, hand_on=spec.pass_env)  # refuses a command that cannot be run
        words = [sys.executable, *ACP_CLIENT, f"--session={places['session']}", "--", *words]
    env |= {"ALLSWELL_ORDERS": places["orders_file"], PROMPT: places["prompt_file"], **more}
    limits = AttemptLimits(idle=spec.idle, grace=spec.grace, repeats=spec.repeats, longer_idle=longer_idle(spec))
    order = order_for(words, cwd=folder, env=env, hand_on=spec.pass_env, limits=limits, folder=folder)
    return dataclasses.replace(order, cancels=bool(spec.acp))


def prepare_order(spec: AgentSpec, brief: Brief, lease: Lease) -> LaunchSpec:
    """Write an agent's brief, and fill in its command; `Refused` or `Unavailable` where that cannot be. It blocks.

    It looks into the folder in which the agent is to work, which may not answer: so it is not done on a loop.
    """
    argv, more = brief.command, {}
    if spec.function:
        argv = (sys.executable, *CALLED, spec.function, *(() if spec.installed else (brief.folder,)))
        more = {"ALLSWELL_WORK": str(brief.work_file)}
    try:
        brief.write()
        if spec.function:
            write_file(brief.work_file, msgspec.json.encode(told_of(brief, lease)))
        return order_of(spec, argv, brief.places, more)
    except BaseException as error:
        brief.remove()
        if isinstance(error, OSError):
            raise Unavailable(f"the brief: {error.strerror}") from error
        raise


def _names_handover(spec: AgentSpec, brief: Brief) -> bool:
    """Whether its prompt or its command say where the handover stands; to a warm agent the handover is the prompt."""
    if spec.acp:
        return bool(brief.warmth.session) or PLACE in spec.prompt
    named = (*brief.command, *spec.env.values())
    if brief.warmth.session and any("{prompt}" in text or "{prompt_file}" in text for text in named):
        return True
    return any(PLACE in text for text in (*(() if brief.warmth.session else (spec.prompt,)), *named))


def _without_noise(printed: str) -> str:
    return "\n".join(line for line in printed.splitlines() if not is_noise(line))


class CommandRun(AttemptRunner):
    """One attempt by an agent's command: begun with its brief, and spoken to while it runs."""

    def __init__(  # noqa: PLR0913 - three of them are keywords
        self,
        spec: AgentSpec,
        brief: Brief,
        order: LaunchSpec,
        lease: Lease,
        home: StateDir,
        listeners: OutputListeners,
        started: Callable[[], None],
        *,
        tower: SharedSampler | None = None,
        quota: Quota = QUOTA,
        report: OutcomeReport | None = None,
    ) -> None:
        self.inbox: tuple[str, ...] = ()
        """Ids of requests of other agents that wait for its answer."""
        self._spec = spec
        self._brief = brief
        self._asked = ""
        self._asked_at = 0
        self._pipe: tuple[int, int] | None = None
        """Its standard input if `hears` is "stdin": the end that it reads from, and the end that we write to."""
        self._tail = bytearray()
        try:
            order = dataclasses.replace(
                order,
                echo=self._keep_tail,
                listeners=dataclasses.replace(listeners, context_window=spec.context_window),
                quota=quota,
                defer=spec.defer,
                handover=brief.handover.text,
                ends_with_question=spec.ends_with_question if spec.worktree else "",
                pipes_handover=brief.handover.urgent and not _names_handover(spec, brief),
                agent=spec,
                warmth=brief.warmth,
            )
            if spec.hears == "stdin":
                self._pipe = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(self._pipe[1], False)
                order = dataclasses.replace(order, stdin=self._pipe[0])
            note = None if report is None else report.note
            super().__init__(order, lease, home, orders=self._orders, note=note, tower=tower, report=report)
        except BaseException:
            self._clear()
            raise
        self.on_start = started

    @property
    def waits_for(self) -> str | None:
        """Another agent's answer that it waits for."""
        return f"asked for help: {', '.join(self.requests)}" if self.requests else None

    async def run(self) -> AttemptOutcome:
        """Run the command to its end; the reason of a failure has the end of its output."""
        try:
            outcome = await super().run()
        finally:
            self._clear()
        failed = outcome.end in (End.FAILED, End.SIGNALLED, End.LOST) or (outcome.by_itself and outcome.exit_code != 0)
        if outcome.failure is not None or not failed:
            return outcome
        tail = outcome.last_words if self.speaks else _without_noise(self._tail.decode("utf-8", "replace").strip())
        failure = Failure(ErrorClass.TRANSIENT, f"{outcome.reason}:\n{tail}" if tail else outcome.reason)
        return dataclasses.replace(outcome, failure=failure)

    def _clear(self) -> None:
        pipe, self._pipe = self._pipe, None
        for handle in pipe or ():
            os.close(handle)
        self._brief.remove()

    def ask(self, words: str) -> tuple[str, ...]:
        """Ask for a check-in by its socket, a line on its input, and its orders file; return the ways used."""
        self._asked = words
        self._asked_at = SystemClock().monotonic()
        ways = ["socket"]
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # it does not read, or is gone: then it has not heard
                os.write(self._pipe[1], words.replace("\n", " ").encode() + b"\n")
                ways.append("stdin")
        with contextlib.suppress(OSError):
            rewrite_file(self._brief.orders_file, words.encode() + b"\n")
            if self._spec.hears == "file":
                ways.append("file")
        return tuple(ways)

    def _orders(self) -> Mapping[str, object]:
        """Fields added to each answer on its socket: what it is asked for until it has checked in, and its inbox."""
        answer = self.standing.answer
        owed = bool(self._asked) and (answer is None or answer.at < self._asked_at)
        return {**({"order": self._asked} if owed else {}), "inbox": self.inbox}

    def _keep_tail(self, _: int, piece: bytes) -> None:
        self._tail += piece[-_TAIL:]
        del self._tail[:-_TAIL]


Running = CommandRun | FunctionRun
"""One attempt by an agent, whatever kind it is; `run` is called once and raises nothing that the agent does."""
