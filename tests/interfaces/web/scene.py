"""A night that has something of everything: a question, failures, a limit, agents at work, a run with a retry.

It is played on a clock that is set ahead by hand, beginning half an hour ago, so that no test waits for anything.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from allswell.app import make_watch
from allswell.domain.agents.cost import Expense
from allswell.domain.agents.status import PRESENCE_PREFIX as SUPERVISORS
from allswell.domain.agents.status import AgentCondition, AgentSlot, Presence
from allswell.domain.ids import Millis
from allswell.domain.question import AnswerAction, Option
from allswell.engine.watch import Watch
from allswell.store.sqlite import SqliteStore
from allswell.timing.clock import SystemClock
from tests.interfaces.cli.upkeep import environment, run_with

MINUTE = 60_000
HOSTILE = "<script>alert('agent')</script><img src=x onerror=alert(1)>"
"""What an agent may say; it must stay text."""


class HandClock(SystemClock):
    """A clock that stands, and is set ahead by hand."""

    def __init__(self, wall: int) -> None:
        self.at = wall

    def wall(self) -> int:
        return self.at

    def monotonic(self) -> int:
        return self.at

    def boottime(self) -> int:
        return self.at


async def play(store: Path, *, now: int | None = None, hostile: str = HOSTILE) -> dict[str, str]:
    """Fill a store; the ids of what is in it, by what it is. `hostile` is what agents say beside their words."""
    now = time.time_ns() // 1_000_000 if now is None else now
    clock = HandClock(now - 30 * MINUTE)
    chance = random.Random(7)
    kept = SqliteStore(store, clock=clock)
    async with make_watch(kept, clock=clock, chance=chance, sweeping=False) as watch:
        ids = await _night(watch, clock, now, f" {hostile}".rstrip())
        await _fleet(watch, ids, Millis(now))
        return ids


async def _night(  # noqa: PLR0915 - a night has as many statements as it has events
    watch: Watch, clock: HandClock, now: int, hostile: str
) -> dict[str, str]:
    ids: dict[str, str] = {}

    async def at(minutes: float) -> None:
        clock.at = max(clock.at, int(now - minutes * MINUTE))
        while not await watch.sweep_once():
            pass

    run = await watch.open_run("release", timeout="2h")
    build = await watch.submit("build", run=run)
    test = await watch.submit("test", run=run, needs=[build], retries=3, timeout="1h")
    await watch.submit("audit", run=run, needs=[test])
    await watch.submit("publish", run=run, needs=[test])
    await at(28)
    lease = await watch.claim(agent="shell.1", task=build)
    assert lease is not None
    await at(22)
    await lease.complete({"wheel": "dist/app.whl"})
    await at(21)
    tried = await watch.claim(agent="shell.1", task=test)
    assert tried is not None
    await at(15)
    await tried.fail("connection reset by peer", error_class="network")
    await at(14)
    ids["migrate"] = await watch.submit("migrate the database", role="builder")
    await watch.submit("deploy", needs=[ids["migrate"]])
    again = await watch.claim(agent="shell.1", task=test)
    assert again is not None
    asking = await watch.claim(agent="claude.2", task=ids["migrate"])
    assert asking is not None
    await asking.spend(Expense(2_400_000, 90_000, 4_000))
    await at(12)
    ids["question"] = await asking.ask(
        f"Two tables are called users. Which one shall I migrate?{hostile}",
        [
            Option("public", "public.users", AnswerAction.RETRY),
            Option("legacy", "legacy.users", AnswerAction.RETRY),
            Option("reply", "Answer in words", AnswerAction.REPLY),
            Option("skip", "Skip task", AnswerAction.SKIP),
        ],
    )
    refactor = await watch.submit("refactor the parser", timeout="50m", role="builder")
    flaky = await watch.submit(f"fix the flaky test{hostile}", timeout="40m")
    summary = await watch.submit("summarise 400 issues", retries=0)
    await watch.submit("translate the docs", services=["anthropic"])
    await watch.submit("write the changelog", services=["anthropic"])
    first = await watch.claim(agent="codex.1", task=refactor)
    second = await watch.claim(agent="codex.2", task=flaky)
    third = await watch.claim(agent="claude.1", task=summary)
    assert first is not None
    assert second is not None
    assert third is not None
    ids |= {"refactor": refactor, "flaky": flaky, "summary": summary, "run": run, "test": test}
    await at(9)
    await second.checkin(f"seed 7 fails, bisecting{hostile}", progress=0.4)
    await third.fail("the provider says: invalid request", error_class="validation")
    await watch.park("anthropic", 38 * MINUTE)
    await first.spend(Expense(610_000, 20_000, 900))
    await at(3)
    await first.checkin("edited lexer.py", progress=0.46)
    await again.checkin("211 of 240 passed", progress=0.88)
    await at(0.1)
    await first.checkin("edited lexer.py", progress=0.6)
    return {name: str(id_) for name, id_ in ids.items()}


async def _fleet(watch: Watch, ids: dict[str, str], now: Millis) -> None:
    """What a supervisor says of its agents; its pace is slow, so that it is alive for as long as tests run."""

    def post(holder: str, condition: AgentCondition, task: str, evidence: str, ago: int) -> AgentSlot:
        agent, at = holder.partition(".")[0], Millis(now - ago * 1_000)
        return AgentSlot(agent, holder, "claude", None, ids[task], "", 1, condition.value, evidence, at)

    posts = (
        post("codex.1", AgentCondition.WORKING, "refactor", "edited lexer.py", 6),
        post("codex.2", AgentCondition.QUIET, "flaky", "no sign of progress for 2m", 130),
        post("shell.1", AgentCondition.WORKING, "test", "checked in", 180),
        AgentSlot("claude", "claude.1", "claude", waits="anthropic is parked", account="anthropic"),
    )
    words = Presence("night", "m", "here", 1, "b", "n", 1, Millis(now - 40 * MINUTE), now, 3_600_000, posts=posts)
    assert await watch.swap(SUPERVISORS + "night", None, msgspec.json.encode(words).decode())


def work(folder: Path) -> None:
    """What only real processes leave behind: an attempt with its output, its changes and its receipt; a build."""
    (folder / "lexer.py").write_text("def lex(text):\n    return list(text)\n")
    for words in (
        ("init", "-q"),
        ("add", "lexer.py"),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "1"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    said = {"type": "assistant", "message": {"content": [{"type": "text", "text": f"I mend it. {HOSTILE}"}]}}
    change = f"def lex(text):\n    return text.split()  # {HOSTILE}\n"
    script = f"open('lexer.py', 'w').write({change!r}); print({json.dumps(said)!r}); raise SystemExit(3)"
    _allswell(folder, "run", "--name", "mend the lexer", "--retries", "0", "--", sys.executable, "-c", script)
    spec = folder / "components"
    spec.mkdir()
    (spec / "api.md").write_text("# The doors\n")
    (spec / "web.md").write_text("# The pages\n\ndepends on:\n- name: api\n")
    said_there = (
        "ann: CLAIM api",
        "ann: READY api https://x/1",
        f"eve: AUDIT api FAIL {HOSTILE}",
        "ann: READY api https://x/1",
    )
    _allswell(folder, "coordinate", "components", "--stdio", said="\n".join((*said_there, "eve: AUDIT api PASS", "")))


def _allswell(folder: Path, *words: str, said: str = "") -> None:
    run_with(environment(), *words, cwd=folder, given=said)


if __name__ == "__main__":
    print(asyncio.run(play(Path(sys.argv[1]))))  # noqa: T201 - for whoever wants to look at it
