"""Circles of calls are found, from random streams and from those of the three clients; exploration never is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.agents.evidence import Evidence, EvidenceKind, EvidenceState, ended_repeating
from allswell.domain.agents.output import AgentEvent, AgentText, ToolCall, ToolCallResult, TurnEnded, parse
from allswell.domain.agents.repetition import RepetitionFinder
from allswell.domain.agents.status import AgentCondition, AttemptFacts, judge

Pair = tuple[object, str]
"""The input of a call, and its answer."""


def fed(pairs: Iterable[Pair], limit: int = 5, name: str = "Read") -> RepetitionFinder:
    finder = RepetitionFinder(limit)
    for number, (asked, answer) in enumerate(pairs):
        finder.hear(ToolCall(f"c{number}", name, asked))
        finder.hear(AgentText(f"I look, for the {number}th time."))
        finder.hear(ToolCallResult(f"c{number}", answer))
    return finder


def about(path: str) -> dict[str, str]:
    return {"file_path": f"/home/ada/{path}"}


@given(st.lists(st.text(max_size=8), min_size=1, unique=True), st.sampled_from(["same", ""]))
def test_calls_with_different_arguments_are_never_a_circle(paths: Sequence[str], answer: str) -> None:
    finder = RepetitionFinder(2)
    for number, path in enumerate(paths):
        finder.hear(ToolCall(str(number), "Read", {"file_path": path}))
        finder.hear(ToolCallResult(str(number), answer))
        assert finder.found is None


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), max_size=30),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), min_size=1, max_size=2, unique=True),
    st.integers(2, 8),
    st.integers(0, 20),
)
def test_a_circle_of_one_or_two_is_always_found_after_the_limit(
    before: list[Pair], circle: list[Pair], limit: int, more: int
) -> None:
    rounds = limit + more
    # A first round may continue what came before it in another circle.
    found = fed([*before, *circle * (rounds + 1)], limit).found
    assert found is not None
    assert found.rounds >= rounds
    assert bool(found.second) == (len(circle) == 2)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), max_size=40), st.integers(2, 5))
def test_what_is_found_is_there(pairs: list[Pair], limit: int) -> None:
    found = fed(pairs, limit).found
    if found is not None:
        length = 2 if found.second else 1
        end = pairs[-found.rounds * length :]
        assert len(end) == found.rounds * length >= limit
        assert end == end[:length] * found.rounds


def test_it_says_what_repeats_and_how_often() -> None:
    lexer, parser = (about("lexer.py"), "1\tx"), (about("parser.py"), "2\ty")
    assert fed([lexer] * 4).found is None
    once = fed([lexer] * 14).found
    assert once is not None
    assert once.words == "called Read lexer.py 14 times, same answer"
    assert fed([lexer, parser] * 4).found is None
    two = fed([lexer, parser] * 6).found
    assert two is not None
    assert two.words == "called Read lexer.py and Read parser.py in turn, 6 times each, same answers"


def test_another_call_ends_it_at_once_and_another_answer_does_too() -> None:
    new, again = ToolCall("c10", "Read", about("other.py")), ToolCall("c10", "Read", about("lexer.py"))
    ended = parse(b'{"type":"turn.completed","usage":{}}').events
    assert isinstance(ended[0], TurnEnded)
    cases: list[tuple[Sequence[AgentEvent], bool]] = [
        ([again], True),
        ([again, ToolCallResult("c10", "x")], True),
        ([again, ToolCallResult("c10", "y")], False),
        ([new], False),  # a call that has no answer yet is exploration already
        (ended, False),  # what comes after a turn was asked for anew
    ]
    for goes_on, later in cases:
        finder = fed([(about("lexer.py"), "x")] * 9)
        for event in goes_on:
            finder.hear(event)
        assert (finder.found is not None) is later, goes_on


@pytest.mark.parametrize(
    "name, asked",
    [
        ("mcp__allswell__answers", {"ids": ["q_1"]}),
        ("allswell" + ".answers", {"ids": ["q_1"]}),
        ("Bash", {"command": "allswell question q_1"}),
        ("shell", "/bin/bash -lc 'allswell question q_1'"),
    ],
)
def test_to_wait_for_an_answer_of_ours_is_no_circle(name: str, asked: object) -> None:
    assert fed([(asked, "not answered yet")] * 30, name=name).found is None


def test_a_field_that_is_worded_anew_each_time_makes_no_other_call() -> None:
    calls = [({"command": "npm test", "description": f"Try {number}"}, "1 failed") for number in range(6)]
    found = fed(calls, name="Bash").found
    assert found is not None
    assert found.words == "called Bash npm test 6 times, same answer"


def lines(dialect: str, number: int) -> list[bytes]:
    if dialect == "claude":
        use = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": about("lexer.py")}
        back = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "1\tx"}
        told = [("assistant", use), ("user", back)]
        said = [{"type": kind, "session_id": "s", "message": {"content": [part]}} for kind, part in told]
    elif dialect == "command":
        ran = {"id": f"i{number}", "type": "command_execution", "command": "cat x", "exit_code": None}
        done = {**ran, "aggregated_output": "x\n", "exit_code": 0}
        said = [{"type": "item.started", "item": ran}, {"type": "item.completed", "item": done}]
    elif dialect == "mcp":
        asked = {"id": f"i{number}", "type": "mcp_tool_call", "server": "db", "tool": "rows", "arguments": {"n": 1}}
        got = {**asked, "result": {"content": [{"type": "text", "text": "none"}]}}
        said = [{"type": "item.started", "item": asked}, {"type": "item.completed", "item": got}]
    else:
        call = {"type": "tool_use", "tool_name": "read_file", "tool_id": f"g{number}", "parameters": {"path": "x"}}
        answer = {"type": "tool_result", "tool_id": f"g{number}", "status": "success", "output": "x"}
        said = [{**one, "timestamp": "2026-11-18T20:00:00Z"} for one in (call, answer)]
    return [msgspec.json.encode(one) for one in said]


@pytest.mark.parametrize(
    "dialect, words",
    [
        ("claude", "called Read lexer.py 7 times, same answer"),
        ("command", "called shell cat x 7 times, same answer"),
        ("mcp", 'called db.rows {"n":1} 7 times, same answer'),
        ("gemini", "called read_file x 7 times, same answer"),
    ],
)
def test_it_is_found_in_the_lines_of_every_client(dialect: str, words: str) -> None:
    finder = RepetitionFinder(5)
    for number in range(7):
        for line in lines(dialect, number):
            for event in parse(line).events:
                finder.hear(event)
    assert finder.found is not None
    assert finder.found.words == words


def test_it_costs_the_same_whatever_an_agent_prints() -> None:
    finder = RepetitionFinder(5)
    for number in range(2_000):
        finder.hear(ToolCall(f"{number}" * 500, "T" * 5_000, {"path": "p" * 5_000 + str(number)}))
    kept = list(finder._open.items())
    assert len(kept) <= 64
    assert sum(sys.getsizeof(key) + sum(map(sys.getsizeof, value)) for key, value in kept) < 64 * 1_500


def test_a_circle_is_no_evidence_and_its_end_is_known_by_its_reason() -> None:
    began = EvidenceState(0).heard(Evidence(EvidenceKind.PROTOCOL, 1_000, "claude: tool_use Read"))
    round_ = began.repeating("called Read lexer.py 5 times, same answer")
    for sign in (EvidenceKind.PROTOCOL, EvidenceKind.PROCESS, EvidenceKind.LINE):
        round_ = round_.heard(Evidence(sign, 9_000, "more of it"))
    assert round_.idle_at(10_000) == 11_000
    assert round_.last[EvidenceKind.OUTPUT].what == "called Read lexer.py 5 times, same answer"
    assert round_.answer is not None
    assert round_.answer.at == 1_000, "it answers no asked-for check-in, either"
    verdict = judge(round_, AttemptFacts(), 9_500)
    assert (verdict.condition, verdict.evidence) == (AgentCondition.REPEATING, round_.repeats)
    assert judge(round_, AttemptFacts(for_human="q_1"), 9_500).condition is AgentCondition.FOR_HUMAN
    for sign in (EvidenceKind.CHECKIN, EvidenceKind.WORK):
        assert round_.heard(Evidence(sign, 9_000, "its own word")).idle_at(10_000) == 19_000
    again = round_.repeating("").heard(Evidence(EvidenceKind.PROTOCOL, 9_900, "claude: tool_use Edit"))
    assert again.idle_at(10_000) == 19_900
    assert ended_repeating("agent_repeats", "")
    assert ended_repeating("agent_idle", "it repeated itself: called Read lexer.py 5 times, same answer")
    assert not ended_repeating("agent_idle", "")
