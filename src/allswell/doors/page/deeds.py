"""What can be done from the page: each a form that is posted, and the call of the watch that it is made into.

Forms are a session's own (`csrf`), and say by a field `back` where the page goes on for a browser without scripts. What
is wrong with them is told as everywhere: by the rule that refuses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from allswell.doors.http.call import Call
from allswell.engine.finding import find_question, find_task
from allswell.errors import Refused

Form = Mapping[str, str]


@dataclass(frozen=True)
class Deed:
    """One thing that can be done; `does` answers with a sentence about what was done."""

    path: str
    does: Callable[[Call, Form], Awaitable[str]]


async def answer(call: Call, form: Form) -> str:
    """Decide a question: the button that was pressed is the option, and what it takes stands beside it."""
    id_ = await find_question(call.views, call.named("question"))
    option = form.get("option", "")
    text = form.get(f"text-{option}", "").strip()
    parts = [{"name": line.strip()} for line in form.get(f"parts-{option}", "").splitlines() if line.strip()]
    timeout, cost = form.get(f"time-{option}", "").strip(), form.get(f"cost-{option}", "").strip()
    await call.watch.answer(
        id_, option, text, subtasks=parts, timeout=timeout or None, max_cost_usd=_dollars(cost), command=call.command
    )
    closed = await call.watch.question(id_)
    choice = option if closed is None else closed.choice or option
    label = choice if closed is None else next((one.label for one in closed.options if one.key == choice), choice)
    return f"Answered: {label}."


def _dollars(given: str) -> float | None:
    if not given:
        return None
    try:
        return float(given.removeprefix("$"))
    except ValueError:
        text = f"{given[:40]!r} is no sum of money; write dollars, such as 2.50"
        raise Refused("bad_cost", text, where="cost") from None


async def dismiss_question(call: Call, _: Form) -> str:
    """Say that a question was seen."""
    await call.watch.dismiss(await find_question(call.views, call.named("question")), "")
    return "Dismissed: it stays open, and is not told as needing you."


async def dismiss_task(call: Call, _: Form) -> str:
    """Say that the end of a task was seen."""
    await call.watch.dismiss(await find_task(call.views, call.named("task")), "")
    return "Dismissed."


async def retry_task(call: Call, form: Form) -> str:
    """Hand an ended task over again."""
    id_ = await find_task(call.views, call.named("task"))
    made = await call.watch.retry(id_, dependents="with_dependents" in form)
    return f"Handed over again, as {', '.join(map(str, made.values()))}."


async def cancel_task(call: Call, form: Form) -> str:
    """Call a task off."""
    id_ = await find_task(call.views, call.named("task"))
    await call.watch.cancel(id_, form.get("reason", "").strip() or "cancelled", command=call.command)
    return "Called off: whoever holds it is refused from now on."


DEEDS = (
    Deed("/questions/{question}/answer", answer),
    Deed("/questions/{question}/dismiss", dismiss_question),
    Deed("/tasks/{task}/dismiss", dismiss_task),
    Deed("/tasks/{task}/retry", retry_task),
    Deed("/tasks/{task}/cancel", cancel_task),
)
