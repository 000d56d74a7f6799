"""Three agents that ask each other: Sandman asks, Oracle answers late, Echo never does.

    python examples/mesh/story.py [FOLDER]

It prints what the mesh's channel would be told, as it happens. The times of the protocol (five minutes, two retries)
are shortened to fractions of a second; everything else is as in earnest.
"""

import asyncio
import sys
import tempfile

import allswell
from allswell.domain.mesh.comms import SentenceContext, mesh_words
from allswell.engine.status.journal import asked_of

QUICK = {"timeout": "200ms", "retries": 1}


async def tell(watch: allswell.Watch) -> None:
    """The channel: every sentence that the protocol has for what is in the journal."""
    async for entry in watch.events(follow=True):
        event = entry.event
        row = None if event.task is None else await watch.task(event.task)
        name = "" if row is None else row.task.name
        asked = await asked_of(watch.views, event) if "request" in event.data else None
        about = SentenceContext(name) if asked is None else SentenceContext(name, asked.summary, asked.to)
        words = mesh_words(event, about)
        if words is not None:
            print(words, flush=True)


async def sandman(watch: allswell.Watch) -> None:
    """Works through its tasks, and asks for what it lacks."""
    lease = await watch.claim(agent="Sandman")
    assert lease is not None
    print("[sends request to Oracle for server access]", flush=True)
    ended = await lease.request("Oracle", "handoff", "server access", **QUICK)
    assert ended.blocked
    lease = ended.next  # the doc task: already claimed
    print("[asks Echo whether it is there]", flush=True)
    ended = await lease.request("Echo", "status_check", "are you there?", **QUICK)
    assert ended.blocked
    assert ended.next is None  # everything else waits, too
    print("[later, Oracle responds]", flush=True)
    lease = await watch.claim(agent="Sandman", wait="30s")
    assert lease is not None
    (request,) = [one for one in (await watch.tasks()) if one.task.name == "server access"]
    print(f"[goes on with {lease.name}: {await watch.result(request.task.id)}]", flush=True)
    await lease.complete("deployed")


async def oracle(watch: allswell.Watch) -> None:
    """Answers what it is asked, but only once that has blocked somebody."""
    while True:
        for item in await watch.inbox("Oracle", wait="1s"):
            if item.to == "Oracle" and item.expires_at is None and await _sandman_is_done(watch):
                await watch.respond(item.request_id, "access is granted", agent="Oracle")
                return
        await asyncio.sleep(0.05)


async def _sandman_is_done(watch: allswell.Watch) -> bool:
    blocked = [entry async for entry in watch.events() if entry.event.kind == "request_blocked"]
    return len(blocked) == 2


async def main(folder: str) -> None:
    """The whole story, on a store in this folder."""
    async with allswell.open(f"sqlite:///{folder}/mesh.db") as watch:
        for name in ("Oracle", "Echo"):
            await watch.inbox(name)  # so that they are known
        await watch.submit("Deploy webhook monitoring", priority=2)
        await watch.submit("doc task", priority=1)
        telling = asyncio.ensure_future(tell(watch))
        await asyncio.gather(sandman(watch), oracle(watch))
        await asyncio.sleep(0.5)
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as place:
            asyncio.run(main(place))
