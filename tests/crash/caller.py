"""A process that calls a service through a guard, as often as it is told to.

Run as `python caller.py URL POLICY`, the breaker's policy in JSON. Each line on standard input is one call. It says
`calling` when it was let through, then waits for how the service shall answer (`well`, anything else fails), and says
`answered`, `failed` or `refused`.
"""

import asyncio
import sys

import msgspec

import allswell
from allswell.engine.timings import Timings


def say(*words: object) -> None:
    """One line per fact."""
    print(*words, flush=True)  # noqa: T201 - this is how it reports


async def heard() -> str:
    return (await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)).strip()


async def service() -> None:
    say("calling")
    if await heard() != "well":
        raise ConnectionError("as it was told")


async def main(url: str, policy: str) -> None:
    breaker = msgspec.json.decode(policy, type=allswell.BreakerPolicy)
    pace = Timings(service_patience=60)  # on a busy machine too, it is the store that decides
    async with allswell.open(url, pace=pace) as watch:
        figures = allswell.GuardPolicy(
            attempt_timeout=breaker.probe_lease, retry=allswell.RetryPolicy(retries=0), breaker=breaker
        )
        guard = allswell.guard("api", figures, watch=watch)
        say("open")
        while await heard() == "call":
            try:
                await guard.call(service)
            except allswell.BreakerOpen:
                say("refused")
            except ConnectionError:
                say("failed")
            else:
                say("answered")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
