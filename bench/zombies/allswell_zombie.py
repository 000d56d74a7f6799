"""Allswell: a lease that is not renewed lapses; every word of its holder carries the token, and is refused after that.

A is a process of its own that is stopped (SIGSTOP) with a lease in hand, and goes on (SIGCONT) after B has the task.
"""

import asyncio
import signal
import subprocess
import sys

from story import ACCEPTED, REFUSED, Story

import allswell

url, role = sys.argv[1], (sys.argv[2] if len(sys.argv) > 2 else "B")


async def as_a() -> None:
    """The holder that is stopped."""
    async with allswell.open(url) as watch:
        lease = await watch.claim(agent="A", lease="500ms", wait="10s")
        assert lease is not None
        print(f"task {lease.task}, token {lease.token}", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        try:
            await lease.complete("from A")
            print("None", flush=True)
        except allswell.AllswellError as error:
            print(f"{type(error).__name__}: {error}", flush=True)


async def as_b() -> None:
    """The one that tells the story."""
    story = Story("lease of 500 ms without renewal: A's process is stopped")
    async with allswell.open(url) as watch:
        task = await watch.submit("noop")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        first = await asyncio.to_thread(subprocess.Popen, [sys.executable, __file__, url, "A"], **pipes)
        story.say(
            "A", "watch.claim(agent='A', lease='500ms')", (await asyncio.to_thread(first.stdout.readline)).strip()
        )
        first.send_signal(signal.SIGSTOP)
        lease = await watch.claim(agent="B", lease="30s", wait="10s")
        assert lease is not None
        assert lease.task == task
        story.say("B", "watch.claim(agent='B', lease='30s')", f"task {lease.task}, token {lease.token}")
        first.send_signal(signal.SIGCONT)
        answer, _ = await asyncio.to_thread(first.communicate, "\n")
        story.say("A", "lease.complete('from A')", answer.strip())
        row = await watch.task(task)
        assert row is not None
        held = row.lease is not None and row.lease.agent == "B"
        await lease.complete("from B")
        story.say("B", "lease.complete('from B')", "None")
        late = [attempt.late for attempt in await watch.attempts(task) if attempt.agent == "A"]
        after = f"B holds on, its result stands ({await watch.result(task)!r}); what A brought is kept as late: {late}"
    story.end(REFUSED if held else ACCEPTED, after)


asyncio.run(as_a() if role == "A" else as_b())
