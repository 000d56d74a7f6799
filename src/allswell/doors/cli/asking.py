"""`ask`: an agent's question to a human, and waiting for the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli import supervised
from allswell.doors.cli.commands import WORKING, Commands
from allswell.doors.cli.frame import Exit, Frame
from allswell.doors.cli.given import text_of
from allswell.doors.cli.held import hold_of
from allswell.doors.cli.options import Agent, Argument, Json, Option, Store, Task, Token
from allswell.doors.cli.render import block
from allswell.engine.explaining.words import typed
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.names import QuestionId
    from allswell.domain.question import Option as Choice
    from allswell.domain.question import Question
    from allswell.engine.watch import Watch
    from allswell.runtime.speaking.words import Ask

_POLL_SECONDS = 0.25


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        WORKING,
        "ask",
        ask,
        'allswell ask "Which table shall I migrate?"',
        'allswell ask "May I drop it?" -o yes=Drop -o no=Keep --hold --wait 1h',
    )


def ask(
    text: Annotated[str, Argument(metavar="TEXT", help="The question; @file, or - for standard input.")],
    option: Annotated[
        list[str] | None,
        Option("--option", "-o", metavar="KEY=LABEL", help="A way to answer; repeatable. Default: in words."),
    ] = None,
    hold: Annotated[bool, Option("--hold", help="Keep the task and go on meanwhile.")] = False,
    wait: Annotated[
        str | None, Option("--wait", "-w", metavar="TIME", help="Wait so long for the answer, else exit code 3.")
    ] = None,
    task: Task = None,
    token: Token = None,
    agent: Agent = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Ask a human, and wait for the answer or go on.

    Without --hold this attempt ends, and the task waits for the answer.

    A KEY that names an act (skip, split, clarify, increase_timeout, increase_idle, retry, reply) does that; any other
    one lets the task go on.
    """
    from allswell.domain.duration import parse
    from allswell.doors.shapes.question import QuestionShape

    frame = Frame(store, json=json)
    asked = text_of(text, "TEXT")
    options = tuple(map(_option, option or ()))
    patience = None if wait is None else parse(wait, where="--wait") / 1000

    async def work(watch: Watch) -> Question:
        held = await hold_of(frame, watch, task, token, agent)
        id_ = await held.ask(asked, options, hold=hold)
        return await _answered(watch, id_, patience or 0.0)

    path = supervised.socket_of(store)
    if path is None:
        question = frame.run(work)
    else:
        from allswell.runtime.speaking.words import Ask

        question = _asked_through(path, Ask(task=task, token=token, text=asked, options=options, hold=hold), patience)
    if question.closed_at is not None:
        words = "\n".join(part for part in (question.choice or "", block(question.answer)) if part)
        frame.say(QuestionShape.of(question), words)
        return
    frame.say(QuestionShape.of(question), str(question.id))
    over = "" if hold else " This attempt is over: the task waits for the answer."
    if wait is not None:
        frame.leave(Exit.NEEDS_HUMAN, f"nobody has answered yet; `allswell questions` lists what waits.{over}")
    frame.hint(f"Asked; `{typed('why', question.id)}` shows each way to answer.{over}")


def _asked_through(path: str, word: Ask, patience: float | None) -> Question:
    """Ask through the supervisor, and look again until the question is closed or patience ends."""
    from time import monotonic, sleep

    from allswell.errors import Bug
    from allswell.runtime.speaking.words import Look

    until = monotonic() + (patience or 0.0)
    question = supervised.tell(path, word).question
    while question is not None and question.closed_at is None and (left := until - monotonic()) > 0:
        sleep(min(left, _POLL_SECONDS))
        question = supervised.tell(path, Look(question=question.id)).question
    if question is None:
        raise Bug("a question was asked, and none came back")
    return question


def _option(given: str) -> Choice:
    from allswell.domain.question import option_of

    key, sign, label = given.partition("=")
    if not sign or not key.strip() or not label.strip():
        raise Refused("bad_option", f"--option {given!r} must be KEY=LABEL, such as yes='Go ahead'", where="--option")
    return option_of(key.strip(), label.strip())


async def _answered(watch: Watch, id_: QuestionId, patience: float) -> Question:
    """The question once it is closed, or as it is when patience ends."""
    import asyncio

    until = asyncio.get_running_loop().time() + patience
    while True:
        question = await watch.question(id_)
        if question is None:
            raise Refused("unknown_question", f"there is no question {id_}", where="question")
        left = until - asyncio.get_running_loop().time()
        if question.closed_at is not None or left <= 0:
            return question
        await asyncio.sleep(min(left, _POLL_SECONDS))
