"""What an agent prints holds up nobody but itself: its supervisor reads it, and has a fleet to look after."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from allswell.domain.agents.conversation import entries
from allswell.domain.agents.cost import USD, Expense
from allswell.domain.agents.denied import CALLS_MOST, Denied, denied_call
from allswell.domain.agents.output import (
    LONGEST_FINAL_LINE,
    REFUSALS_MOST,
    TurnEnded,
    denied_in,
    not_done,
    parse,
    usage_left,
)
from allswell.domain.agents.refusal import UsageLimit
from allswell.domain.agents.spending import SESSIONS_MOST, UsageCounter
from allswell.domain.agents.usage import LONGEST_PAUSE, Thresholds, Usage, UsageLevel, judge
from allswell.domain.build.announcements import still_owed
from allswell.domain.build.line import MESSAGE_MAX
from allswell.domain.build.line import read as read_message
from allswell.domain.ids import Millis
from allswell.domain.values import check_json
from allswell.runtime.attempt import output
from allswell.runtime.attempt.output import OutputReader, Streams
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
    meter = UsageCounter()
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


@pytest.mark.parametrize("part", [b"[]", b"{}", b"0", b'""', b'{"a":[]}'])
def test_what_stands_beside_a_refusal_or_a_cost_is_passed_over(part: bytes) -> None:
    """To make objects of it took seconds for each line, in which the loop of the supervisor served no other agent."""
    many = b",".join([part] * (8_000_000 // (len(part) + 1)))
    refused = _RESULT % b"" + b'{"type":"result","session_id":"s","permission_denials":[ {"tool_name":"Ls"}],"x":[%s]}'
    listed = b'{"type":"result","session_id":"s","permission_denials":[ {"tool_name":"Ls","tool_input":{"a":[%s]}}]}'
    cost = b'{"type":"result","session_id":"s","total_cost_usd":1,"usage":{"input_tokens":7,"x":[%s]}}'
    tracemalloc.start()
    try:
        assert [call.tool for call in denied_in(refused % many).calls] == ["Bash", "Ls"]
        assert [(call.tool, call.input) for call in denied_in(listed % many).calls] == [("Ls", "")]
        assert (
            not_done(
                parse(
                    b'{"type":"turn.failed","error":{"message":"no"},"x":[%s]}' % many, LONGEST_FINAL_LINE + 1_000_000
                )
            )
            is not None
        )
        assert (
            not_done(parse(b'{"type":"turn.failed","error":[%s]}' % many, LONGEST_FINAL_LINE + 1_000_000)) is not None
        )
        (report,) = (e for e in parse(cost % many[:900_000].rpartition(b",")[0]).events if isinstance(e, TurnEnded))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.expense == Expense(USD, 7, 0)
    assert peak < 60_000_000 + 8 * len(many)  # objects would take ten times as much


def test_a_long_call_is_not_taken_for_a_short_one() -> None:
    """What of it is not read whole cannot be allowed, whatever the rest of it says."""
    for name in ("description", "x"):
        denial = {"tool_name": "Bash", "tool_input": {"command": "ls", name: "y" * 100_000}}
        line = {"type": "result", "session_id": "s", "permission_denials": [denial]}
        (call,) = denied_in(msgspec.json.encode(line).replace(b":[{", b":[ {", 1)).calls
        assert (call.input, bool(call.barred), call.text) == ("", True, "Bash(ls)")


def test_refusals_are_read_beside_the_loop_and_once_however_often_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that said again and again what the store refuses had megabytes read in the loop each time."""

    async def go() -> None:
        streams = Streams(tmp_path, "t.1", None, lambda source, echo: OutputReader(source, echo, lambda _: None))
        threads: list[int] = []

        def read(printed: bytes) -> Denied:
            threads.append(threading.get_ident())
            return denied_in(printed)

        monkeypatch.setattr(output, "denied_in", read)
        try:
            put(tmp_path / "t.1.stdout", (_RESULT % b"").decode())
            asked = asyncio.get_running_loop().time()
            found = await asyncio.gather(*(streams.denied(not_before=asked) for _ in range(20)))
            assert {denied.count for denied in found} == {1}
            assert len(threads) == 1
            assert threads[0] != threading.get_ident()
            await streams.denied()  # who must know it exactly has it read again
            assert len(threads) == 2
        finally:
            streams.close()

    asyncio.run(go())


def test_a_long_call_is_told_in_a_few_words_at_once() -> None:
    """Of a text of which eighty signs are shown, each sign was looked at, in the loop that serves the fleet."""
    began = time.process_time()
    for _ in range(400):
        assert denied_call("Bash", {"command": "cd x && " * 60_000}).text.startswith("Bash(cd x && cd x && ")
        assert denied_call("Bash" * 60_000, {}).text.startswith("Bash")
    assert _used(began) < _SECONDS


def test_a_million_small_lists_are_checked_at_once() -> None:
    """Each was walked through, in the loop of a server or a supervisor, as often as an agent brought them."""
    text = "[" + ",".join(["[[[]]]"] * 100_000) + "]"

    def least(work: Callable[[], object]) -> float:
        took = []
        for _ in range(10):
            began = time.process_time()
            work()
            took.append(_used(began))
        return min(took)

    reading = least(lambda: msgspec.json.decode(text))
    assert least(lambda: check_json(text, "payload")) < reading


_BIG = b"9" * 4_000
_ODD_LINES = [
    b'{"type":"assistant","message":"CHECKPOINT \xff"}',
    b'{"type":"rate_limit_event","rate_limit_info":"\xff"}',
    b'{"type":"error","message":"usage limit \xff"}',
    b'{"type":"assistant","message":{"usage":{"input_tokens":%s}},"x":"usage limit"}' % _BIG,
    b'{"type":"rate_limit_event","rate_limit_info":{"utilization":%s,"resetsAt":%s}}' % (_BIG, _BIG),
    b'{"type":"result","session_id":"s","total_cost_usd":%s,"usage":{"input_tokens":%s}}' % (_BIG, _BIG),
    b'{"type":"result","session_id":"s","duration_ms":%s,"num_turns":%s}' % (_BIG, _BIG),
    b'{"type":"result","session_id":"s","is_error":true,"api_error_status":%s}' % _BIG,
    b"usage limit reached, try again in %s days" % _BIG[:1_900],
]


@pytest.mark.parametrize("line", _ODD_LINES, ids=range(len(_ODD_LINES)))
def test_an_odd_line_is_no_error_of_ours(line: bytes) -> None:
    """As the last one, without its end, it had the task given back at once: hundreds of attempts, and no end."""
    assert isinstance(entries(line), list)
    assert not_done(parse(line)) is None or line.startswith(b'{"type":"result"')
    for event in parse(line).events:
        usage_left(event, 200_000)
        if isinstance(event, TurnEnded):
            UsageCounter().hear(event.session, event.expense)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"result","is_error":true,"result":%s,"x":"usage limit"}',
        b'{"type":"error","message":%s,"x":"usage limit"}',
        b'{"item":{"type":"agent_message","text":%s},"x":"CHECKPOINT"}',
    ],
)
def test_no_depth_is_an_error_of_ours(line: bytes) -> None:
    for depth in range(800, 1_000):
        entries(line % (b"[" * depth + b"]" * depth))


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


_LINE_SECONDS = 1.0
"""Of one processor, for one message in a chat: tens of milliseconds are usual, and what is quadratic takes seven."""


@pytest.mark.parametrize("verb", ["ACK x", "CLAIM x", 'PROGRESS x 1% "', "DONE x"])
@pytest.mark.parametrize("filler", [" ", "\u3000", " please", " and", ",", " (PROGRESS every ", "[", "<"])
def test_a_long_message_in_a_chat_does_not_hold_up_its_build(verb: str, filler: str) -> None:
    """Where each of 60,000 blanks was a place to begin from, a coordinator took seconds for each message."""
    message = (verb + filler * MESSAGE_MAX)[: MESSAGE_MAX - 1] + "x"
    began = time.process_time()
    read_message(message)
    assert _used(began) < _LINE_SECONDS


def test_a_line_with_many_secrets_replaced_is_compared_at_once() -> None:
    """As a pattern of so many gaps it was compared in more ways than a coordinator has time, when it began again."""
    line = "REFUSED " + "[REDACTED]a" * 20
    began = time.process_time()
    assert still_owed(["REFUSED " + "a" * 60 + "b"], [line]) == ("REFUSED " + "a" * 60 + "b",)
    assert still_owed(["REFUSED " + "xa" * 20], [line]) == ()
    assert still_owed(["REFUSED " + "a" * 20], [line]) == ("REFUSED " + "a" * 20,)  # a gap stands for something
    assert _used(began) < _LINE_SECONDS
