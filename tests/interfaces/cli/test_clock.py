"""A clock that was set back, as somebody at a command line meets it: it is said, and the next command mends it."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.cli.console import millis
from tests.interfaces.cli.scene import has_all, typed
from tests.interfaces.cli.upkeep import HOUR, database, watch_at

YEAR = 365 * 24 * HOUR
Capture = pytest.CaptureFixture[str]


def test_a_store_once_written_from_the_future_recovers(tmp_path: Path, capsys: Capture) -> None:
    """No view says that all is well while time stands still, `why` promises nothing, and a command lets it go on."""

    async def a_year_ahead() -> tuple[str, str]:
        async with watch_at(tmp_path, ago=-YEAR) as watch:
            await watch.submit("held", timeout="10m")
            lease = await watch.claim(agent="ada", lease="5m")
            assert lease is not None
            await watch.submit("free")
            return lease.task, str(lease.token)

    task, token = asyncio.run(a_year_ahead())

    def say(*words: str, code: int = 0) -> str:
        done, said, wrong = typed(capsys, *words, "--store", f"sqlite:///{database(tmp_path)}")
        assert done == code, (words, said, wrong)
        return said

    def data(*words: str, code: int = 0) -> Any:  # noqa: ANN401 - whatever it is
        return json.loads(say(*words, "--json", code=code))

    seen = say(code=1)
    assert "All's well" not in seen
    has_all(seen, ["1 thing is broken.", "Time limits are paused: this machine's clock is", "behind", "allswell watch"])
    assert [need["kind"] for need in data(code=1)["needs"]] == ["clock"]
    told = data("why", task)
    assert [(one["expected_at"], one["what"][:22]) for one in told["next"]] == [(None, "Time limits are paused")]
    has_all(say("doctor", code=1), ["bad clocks", "Time limits are paused"])

    say("checkin", "half way", "--task", task, "--token", token, "--agent", "ada")
    assert re.search(r"the clock was changed by -(365d|364d 23h)", say("events")), "a slow machine takes its seconds"
    assert say().startswith("All's well.")
    told = data("why", task)
    (lapse,) = [one for one in told["next"] if "lease" in one["what"]]
    assert 0 < millis(lapse["expected_at"]) - millis(told["seen_at"]) <= 300_000
    say("claim", "--agent", "ann")
    assert {"clocks": "ok"}.items() <= {one["check"]: one["verdict"] for one in data("doctor")["findings"]}.items()
    say("done", "--task", task, "--token", token, "--agent", "ada")
