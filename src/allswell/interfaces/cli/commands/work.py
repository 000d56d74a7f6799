"""Commands for whoever does the work: `claim`, `checkin`, `done`, `fail`, `release`, and `ask`.

A holder names its lease by task and token, as options or in the environment (`ALLSWELL_TASK`, `ALLSWELL_TOKEN`,
`ALLSWELL_AGENT`); one that runs under a supervisor speaks through its socket (`ALLSWELL_SOCKET`) and types nothing but
its words. What ends an attempt carries an id made from
its content: saying it twice, because the first answer was lost, is the same as saying it once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from allswell.domain.duration import parse
from allswell.domain.values import to_json
from allswell.engine.status.explanation import clean, quoted, typed
from allswell.errors import Refused
from allswell.interfaces.cli.arguments import (
    answer_lines,
    hold_of,
    in_words,
    json_of,
    spoken,
    text_of,
    told_supervised,
)
from allswell.interfaces.cli.context import CliContext, Exit
from allswell.interfaces.cli.options import Agent, Argument, LeaseOptions, Option
from allswell.interfaces.cli.registry import WORKING, Commands
from allswell.interfaces.cli.rendering import (
    block,
    columns,
    harmless,
    paint,
    pairs,
    plain,
    sentence,
    typed_here,
    when,
    width_of,
)

if TYPE_CHECKING:
    from allswell.actions.holder import Holder
    from allswell.actions.store_holder import StoreHolder
    from allswell.domain.lease.claim import Granted
    from allswell.domain.question import Option as Choice
    from allswell.domain.task.model import TaskRow
    from allswell.engine.watch import Watch
    from allswell.views.lease import ClaimShape, HandoverShape, LastWordShape
    from allswell.views.question import QuestionShape


# `ask`: an agent's question to a human, and waiting for the answer.


def ask(
    text: Annotated[str, Argument(metavar="TEXT", help="The question; @file, or - for standard input.")],
    option: Annotated[
        list[str] | None,
        Option(
            "--option",
            "-o",
            metavar="KEY=LABEL",
            help="An option to answer with, or one word for both; repeatable. Default: an answer in words.",
        ),
    ] = None,
    hold: Annotated[bool, Option("--hold", help="Keep the task and continue meanwhile.")] = False,
    wait: Annotated[
        str | None,
        Option(
            "--wait",
            "-w",
            metavar="TIME",
            help="Wait this long for the answer, then exit code 3. Default: do not wait.",
        ),
    ] = None,
    *,
    lease: LeaseOptions,
    context: CliContext,
) -> None:
    """Ask a human, and wait for the answer or go on.

    Without --hold this attempt ends, and the task waits for the answer.

    A KEY that names an act (clarify, retry, reply) does that; any other one lets the task go on. An agent cannot
    offer options that change limits or costs, or end the task; the human has these anyway.
    """
    asked = text_of(text, "TEXT")
    options = tuple(map(_option, option or ()))
    patience = None if wait is None else parse(wait, where="--wait") / 1000

    async def said(holder: Holder) -> QuestionShape:
        from allswell.actions.holder import wait_for_answers

        made = await holder.ask(asked, options, hold=hold)
        return (await wait_for_answers(holder, [made.question_id], patience or 0.0)).questions[0]

    question = spoken(context, lease, said)
    if question.closed_at is not None:
        words = "\n".join(part for part in (question.choice or "", block(question.answer)) if part)
        context.say(question, words)
        return
    context.say(question, question.question_id)
    over = "" if hold else " This attempt is over: the task waits for the answer."
    if wait is not None:
        context.leave(Exit.NEEDS_HUMAN, f"no answer yet; `allswell questions` lists open questions.{over}")
    context.hint(f"Asked. `{typed('why', question.question_id)}` shows each way to answer.{over}")


def _option(given: str) -> Choice:
    from allswell.domain.question import option_of

    key, sign, label = given.partition("=")
    if not key.strip() or (not label.strip() if sign else len(key.split()) > 1):
        text = f"--option {given!r} must be KEY=LABEL, such as yes='Go ahead', or one word"
        raise Refused("bad_option", text, where="--option")
    return option_of(key.strip(), (label if sign else key).strip())


def session(
    change: Annotated[
        Literal["begins", "waits", "goes_on", "ends"], Argument(metavar="CHANGE", help="What has happened to it.")
    ],
    *,
    client: Annotated[str, Option("--client", metavar="NAME", help="Its program, such as claude.")],
    id: Annotated[str, Option("--id", metavar="ID", help="Its own id.")],  # noqa: A002 - as it is typed
    pid: Annotated[int, Option("--pid", metavar="PID", help="Its process.", min=1)],
    kind: Annotated[str, Option("--kind", metavar="WORD", help="What it waits for, in a word.")] = "",
    text: Annotated[str, Option("--text", metavar="TEXT", help="What it waits for, as it says it.")] = "",
    context: CliContext,
) -> None:
    """Report a session of a coding agent that you have started yourself.

    The plugin does this (`allswell init claude`): the session is listed, and that it waits for you is an alert. It is
    never ended.
    """
    from allswell.runtime.supervisor.presence import SaidSession, report_session
    from allswell.views.agent import SessionShape
    from allswell.views.fields import as_shape

    context.for_humans("session")
    report = SaidSession(client, id, str(Path.cwd()), pid, kind, text or kind)
    listed = context.run(lambda watch: report_session(watch, change, report), sweeping=False)
    if listed is None:
        raise Refused("no_session", f"there is no such session: process {pid} on this machine, {plain(id)!r}", where="")
    context.say(as_shape(listed, SessionShape), f"{listed.agent}: {change}")


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(WORKING, "session", session, "allswell session waits --client claude --id 7f99863e --pid 4242")
    holding = "allswell done --task t_… --token 1"
    app.add(
        WORKING,
        "claim",
        claim,
        "allswell claim --agent ada",
        "allswell claim --agent ada --role critic --wait 10m --json",
        "allswell claim --agent ada --lease 1m   check in every minute, or lose it",
    )
    app.add(
        WORKING,
        "checkin",
        checkin,
        'allswell checkin "half of it is here" --progress 0.5',
        "allswell checkin --json",
    )
    app.add(
        WORKING,
        "done",
        done,
        "allswell done",
        """allswell done '{"pages": 12}'""",
        "allswell done @result.json",
        holding,
    )
    app.add(
        WORKING,
        "fail",
        fail,
        'allswell fail "connection reset" --class network',
        'allswell fail "429" --class rate_limit --retry-after 90s --service anthropic',
    )
    app.add(WORKING, "release", release, 'allswell release "wrong machine" --delay 5m')
    app.add(
        WORKING,
        "ask",
        ask,
        'allswell ask "Which table shall I migrate?"',
        'allswell ask "May I drop it?" -o yes=Drop -o no=Keep --hold --wait 1h',
    )


# --- claiming ---------------------------------------------------------------------------------------------------------


def claim(
    agent: Agent = None,
    role: Annotated[
        list[str] | None, Option("--role", "-r", metavar="ROLE", help="Only tasks of this role; repeatable.")
    ] = None,
    wait: Annotated[str, Option("--wait", "-w", metavar="TIME", help="Wait this long for a task.")] = "0s",
    lease: Annotated[
        str | None,
        Option("--lease", "-l", metavar="TIME", help="Promise to check in at least this often. Default: no promise."),
    ] = None,
    count: Annotated[
        int | None,
        Option("--count", "-n", metavar="N", help="Claim up to N tasks; --json prints a list then. Default: 1."),
    ] = None,
    *,
    context: CliContext,
) -> None:
    """Claim a task to work on; exit code 5 if there is none."""
    from allswell.views.lease import ClaimShape, ClaimsShape, NoClaimShape

    if not agent:
        raise Refused("no_agent", "which agent? use --agent NAME, or set ALLSWELL_AGENT", where="agent")
    context.for_its_agent(agent)
    length = None if lease is None else parse(lease, where="--lease")
    patience = parse(wait, where="--wait")
    most = 1 if count is None else count

    async def work(watch: Watch) -> list[Granted]:
        leases = await watch.claim_many(most, agent=agent, roles=role or None, wait=patience, lease=length)
        return [lease.granted for lease in leases]

    granted = context.run(work)
    if not granted:
        context.say(NoClaimShape(None) if count is None else ClaimsShape([]))
        context.leave(Exit.NOTHING, None if context.json else "nothing to claim")
    claims = [ClaimShape.of(one) for one in granted]
    context.say(claims[0] if count is None else ClaimsShape(claims), "\n\n".join(map(told_claim, claims)))


def told_claim(claim: ClaimShape) -> str:
    """A claimed task in words, with what to type next."""
    task, token = claim.task, claim.token
    answers = [] if claim.handover is None else claim.handover.answers
    payload = bytes(task.payload).decode()
    limit = "none"
    if claim.deadline is not None and claim.remaining_ms is not None:
        limit = when(claim.deadline, claim.deadline - claim.remaining_ms)
    needs = [
        f"{harmless(need.name or need.task)} was {need.outcome}: {harmless(need.reason)}" for need in task.needs_ended
    ]
    shown = pairs(
        [
            ("task", f"{paint(plain(task.name), 'bold')}  {task.task_id}"),
            ("attempt", f"{token} (the token is {token})"),
            ("limit", limit),
            (
                "renew",
                "" if claim.renew_every_ms is None else f"check in at least every {claim.renew_every_ms / 1000:g}s",
            ),
            ("payload", "" if payload == "null" else harmless(payload)),
            ("handover", "" if claim.handover is None else _handed(claim.handover)),
            ("answers", "\n".join("\n".join(answer_lines(answer)) for answer in answers)),
            ("not done", "\n".join(needs)),
            ("notes", "\n".join(map(harmless, task.notes))),
        ]
    )
    nexts = (
        *_exports(
            f"ALLSWELL_TASK={task.task_id}", f"ALLSWELL_TOKEN={token}", f"ALLSWELL_AGENT={quote(claim.agent_id)}"
        ),
        typed_here('allswell checkin "what you did" --progress 0.5'),
        typed_here("allswell done '\"result\"'"),
        typed_here('allswell fail "why"'),
    )
    return shown + "\n" + paint("next:", "dim") + "\n" + "\n".join(f"  {line}" for line in nexts)


def _handed(left: HandoverShape) -> str:
    """What the last attempt leaves to this one, as sentences."""
    from allswell.engine.status.task import outcome

    share = "" if left.progress is None else f" ({left.progress:.0%})"
    word = f"\nits last check-in: {quoted(left.note)}{share}" if left.note or share else ""
    chosen = f"\nthe answer was: {clean(left.answer)}" if left.answer else ""
    return f"{clean(left.agent_id)} {outcome(left.reason, left.message)}{word}{chosen}"


def _exports(*variables: str) -> list[str]:
    """What puts the lease into the environment: on one line where that is wide enough, never broken elsewhere."""
    room = columns()
    if room is None or sum(map(width_of, variables)) + len("  export") + len(variables) <= room:
        return [f"export {' '.join(variables)}"]
    return [f"export {variable}" for variable in variables]


# --- holding ----------------------------------------------------------------------------------------------------------


def checkin(
    note: Annotated[str, Argument(metavar="NOTE", help="What you did.", show_default=False)] = "",
    progress: Annotated[
        float | None, Option("--progress", "-p", metavar="SHARE", help="Share of the work that is done, from 0 to 1.")
    ] = None,
    *,
    lease: LeaseOptions,
    context: CliContext,
) -> None:
    """Report progress; the output says how much time is left, and lists news."""
    orders = spoken(context, lease, lambda holder: holder.check_in(note, progress))
    context.say(orders, in_words(orders))


def _end(
    context: CliContext,
    lease: LeaseOptions,
    verb: Callable[[Holder], Coroutine[Any, Any, LastWordShape]],
    verify: Callable[[StoreHolder], Awaitable[None]] | None = None,
) -> None:
    """Say a word that ends the attempt, and tell where the task stands then; `verify` is what "done" may need first."""
    if context.socket is not None:
        ended = spoken(context, lease, verb)
        context.say(ended, told_supervised(ended))
        return

    async def work(watch: Watch) -> tuple[LastWordShape, TaskRow, int]:
        from allswell.actions.store_holder import StoreHolder
        from allswell.domain.lease.verification import NEEDS_VERIFICATION
        from allswell.views.lease import LastWordShape

        held = await hold_of(context, watch, lease)
        holder = StoreHolder(watch, held)
        try:
            ended = await verb(holder)
        except Refused as error:
            elsewhere = context.url.startswith("http") or _is_supervised(context)
            if verify is None or error.code != NEEDS_VERIFICATION or elsewhere:
                raise  # from elsewhere, and under a supervisor, no holder says of its own work that it was verified
            await verify(holder)
            ended = LastWordShape(held.task, "done", "done", None)
        row = await watch.task(held.task)
        assert row is not None  # noqa: S101 - tasks are never deleted
        return ended, row, await watch.now()

    ended, row, now = context.run(work)
    context.say(ended, sentence(_told_end(row, row.state, now)))


def _told_end(row: TaskRow, state: str, now: int) -> str:
    """Where a task stands once its holder has let it go."""
    name = paint(plain(row.task.name), "bold")
    if state == "delayed" and row.due is not None:
        return f"{name} can be claimed again {when(row.due, now)}"
    if state == "waiting":
        return f"{name} waits for a human: `allswell questions`"
    return f"{name} is ready for another agent" if state == "ready" else f"{name} is {paint(state, state)}"


def _is_supervised(context: CliContext) -> bool:
    """Whether we run inside an attempt on this store, which has somebody to verify it."""
    try:
        context.for_humans("verify")
    except Refused:
        return True
    return False


def done(
    result: Annotated[
        str | None, Argument(metavar="RESULT", help="JSON, @file, or - for standard input.", show_default=False)
    ] = None,
    *,
    lease: LeaseOptions,
    context: CliContext,
) -> None:
    """Report a task as done, with a RESULT.

    If a command verifies the task, it runs first, in the current folder; under a supervisor, after you have ended. If
    it fails, the exit code is 1; you still hold the task and can fix it.
    """
    value = json_of(result, "RESULT")
    to_json(value, "RESULT")

    async def verify(holder: StoreHolder) -> None:
        from allswell.interfaces.cli.commands.verify import done_verified

        await done_verified(context, holder, value)

    _end(context, lease, lambda holder: holder.done(value), verify)


def fail(
    message: Annotated[str, Argument(metavar="MESSAGE", help="What went wrong.")],
    error_class: Annotated[
        str,
        Option("--class", "-c", metavar="CLASS", help="Class of the error.", of=("error class",)),
    ] = "transient",
    retry_after: Annotated[
        str | None, Option("--retry-after", metavar="TIME", help="Time that the provider asked to wait.")
    ] = None,
    service: Annotated[
        list[str] | None, Option("--service", metavar="NAME", help="The service whose limit it was; repeatable.")
    ] = None,
    *,
    lease: LeaseOptions,
    context: CliContext,
) -> None:
    """Report that the attempt failed; the class of the error decides what follows.

    Classes: network, server, overload, transient and rate_limit are tried again; validation, not_found,
    context_overflow and bug end the task; auth and permanent go to a human.
    """
    from allswell.domain.service.retry import ErrorClass, Failure
    from allswell.engine.lookup import did_you_mean

    if error_class not in list(ErrorClass):
        hint = did_you_mean(error_class, ErrorClass) or f"; choose one of: {', '.join(ErrorClass)}"
        raise Refused("bad_class", f"--class: {error_class!r} is no error class{hint}", where="--class")
    after = None if retry_after is None else parse(retry_after, where="--retry-after")
    failure = Failure(ErrorClass(error_class), message, after, tuple(service or ()))
    _end(context, lease, lambda holder: holder.fail(failure))


def release(
    reason: Annotated[str, Argument(metavar="REASON", help="Reason, for the record.")] = "released",
    delay: Annotated[str, Option("--delay", metavar="TIME", help="Keep it from other agents for this time.")] = "0s",
    *,
    lease: LeaseOptions,
    context: CliContext,
) -> None:
    """Give the task back; this counts neither as a failure nor as a timeout."""
    pause = parse(delay, where="--delay")
    _end(context, lease, lambda holder: holder.release(reason, pause))
