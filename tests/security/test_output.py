"""What an agent prints holds up nobody but itself: its supervisor reads it, and has a fleet to look after."""

from __future__ import annotations

import sys
import time
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from allswell.domain.agents.cost import SESSIONS_MOST, USD, Expense, Meter
from allswell.domain.agents.denied import CALLS_MOST
from allswell.domain.agents.log import entries
from allswell.domain.agents.output import REFUSALS_MOST, TurnEnded, denied_in, not_done, parse
from allswell.domain.agents.refusal import UsageLimit
from allswell.domain.agents.usage import LONGEST_PAUSE, Thresholds, Usage, UsageLevel, judge
from allswell.domain.ids import Millis
from tests.security.unprivileged import allswell, put

_SECONDS = 5.0
"""Of one processor: what is quadratic takes many times as long."""
_RESULT = b'{"type":"result","session_id":"s","permission_denials":[ {"tool_name":"Bash"}%s]}\n'
_LOUD = """
import sys
for figure in (b"0", b"1"):
    denials = b",".join([b'{"tool_name":"Bash"}', *[figure] * 1_500_000])
    sys.stdout.buffer.write(b'{"type":"result","session_id":"s","permission_denials":[ ' + denials + b"]}\\n")
"""


def _used(began: float) -> float:
    return time.process_time() - began


def test_refusals_without_number_are_bounded() -> None:
    began = time.process_time()
    denied = denied_in(_RESULT % (b",0" * 200_000) + _RESULT % (b",1" * 200_000))
    assert (denied.count, len(denied.calls)) == (REFUSALS_MOST, 1)
    assert _used(began) < _SECONDS


def test_one_long_call_that_is_refused_again_and_again_is_read_once() -> None:
    told = {"type": "system", "subtype": "permission_denied", "session_id": "s", "tool_use_id": "1"}
    call = {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "x" * 4_000_000}}
    used = {"type": "assistant", "session_id": "s", "message": {"content": [call]}}
    began = time.process_time()
    denied = denied_in(msgspec.json.encode(used) + b"\n" + (msgspec.json.encode(told) + b"\n") * 30_000)
    assert (denied.count, len(denied.calls)) == (REFUSALS_MOST, 1)
    assert _used(began) < _SECONDS
    assert len(denied.calls) <= CALLS_MOST


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"result","session_id":"s","is_error":true,"errors":[%s]}',
        b'{"type":"result","session_id":"s","is_error":true,"subtype":%s}',
        b'{"type":"result","session_id":"s","terminal_reason":"tool_deferred","deferred_tool_use":{"name":"x","input":%s}}',
        b'{"type":"turn.failed","error":%s}',
    ],
)
def test_what_is_as_deep_as_can_be_read_is_not_too_deep_to_be_told(line: bytes) -> None:
    """Just below the depth that cannot be read, there was one that could, and could not be shown."""
    for depth in range(900, 1_000):
        for deep in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
            not_done(parse(line % deep))
            entries(line % deep)


@pytest.mark.parametrize("moment", [b"1e308", b"-1e308", b"-1", b"1e300", b"true", b'"soon"'])
def test_a_reset_that_is_no_moment_is_none(moment: bytes) -> None:
    info = b'{"type":"rate_limit_event","session_id":"s","rate_limit_info":{"status":"rejected","utilization":1,%s}}'
    line = info % (b'"resetsAt":' + moment)
    events = parse(line).events
    assert [event.resets_at for event in events if isinstance(event, Usage)] == [None]
    assert [event.at for event in events if isinstance(event, UsageLimit)] == [None]


def test_no_account_is_paused_for_years_on_the_word_of_its_agent() -> None:
    """Nor by what is left of its session: one line parked the account of a fleet for 300 days."""
    now = Millis(1_800_000_000_000)
    line = b'{"type":"rate_limit_event","rate_limit_info":{"utilization":1.0,"resetsAt":%d}}'
    (usage,) = (event for event in parse(line % (now // 1_000 + 300 * 86_400)).events if isinstance(event, Usage))
    level, acts = judge(UsageLevel(), usage, Thresholds(), now)
    assert acts == ("pause",)
    assert level.until == now + LONGEST_PAUSE


def test_sessions_without_number_are_added_up_and_not_all_kept() -> None:
    """A long id for each fills the memory of the supervisor, and with it every attempt of the fleet ends."""
    meter = Meter()
    line = b'{"type":"result","session_id":"%d%s","total_cost_usd":1,"usage":{}}'
    tracemalloc.start()
    try:
        for number in range(3 * SESSIONS_MOST):
            (end,) = (e for e in parse(line % (number, b"x" * 10_000)).events if isinstance(e, TurnEnded))
            meter.hear(end.session, end.expense)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert meter.total == Expense(3 * SESSIONS_MOST * USD)
    assert kept < 2_000_000


def test_a_fleet_goes_on_beside_an_agent_that_prints_millions_of_refusals(theirs: Path) -> None:
    """Its supervisor compared each with each, and nothing else, for hours: no check-in was answered any more."""
    put(theirs / "loud.py", _LOUD)
    put(theirs / "loud.sh", f"exec {sys.executable} loud.py")
    put(theirs / "quiet.sh", "allswell done")
    put(
        theirs / "allswell.toml",
        "".join(
            f'[agents.{role}]\nrole = "{role}"\ncommand = ["sh", "{role}.sh", "{{prompt_file}}"]\n'
            for role in ("loud", "quiet")
        ),
    )
    for role in ("loud", "quiet"):
        assert allswell("submit", role, "--role", role, cwd=theirs).returncode == 0
    up = allswell("up", "--drain", cwd=theirs)
    assert up.returncode == 0, up
    tasks = msgspec.json.decode(allswell("tasks", "--all", "--json", cwd=theirs).stdout)["tasks"]
    assert {task["state"] for task in tasks} == {"done"}
