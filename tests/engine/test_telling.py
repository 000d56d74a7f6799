"""The words in which things are explained: short, plain, and harmless whoever wrote them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.ids import AgentId, TaskId, Token
from allswell.domain.rules.event import KINDS, Event
from allswell.engine.status.explanation import ago, clean, length, rough, within
from allswell.engine.status.journal import SENTENCES, tell
from allswell.engine.status.why import why
from tests.engine.stage import Stage, play
from tests.properties.budget import DETERMINISTIC


def test_every_event_has_a_sentence() -> None:
    assert SENTENCES.keys() == KINDS.keys()
    for name, kind in KINDS.items():
        told = tell(Event(name, TaskId("t_1"), None, AgentId("bob"), Token(2), dict.fromkeys(kind.fields, 1)))
        assert told
        assert "{" not in told


@pytest.mark.parametrize(
    "kind,data,words",
    [
        (
            "attempt_cost",
            {"cost_usd": None, "given": 12_000, "written": None},
            "unknown, 12,000 tokens in, unknown out",
        ),
        ("attempt_cost", {"cost_usd": 0.5, "given": 1, "written": 2}, "$0.5, 1 tokens in, 2 out"),
        ("checkpoints_collected", {"why": "w", "answered": ["ada"], "silent": []}, "(w): ada answered"),
        ("checkpoints_collected", {"why": "w", "answered": ["a"], "silent": ["b"]}, "(w): a answered, b did not"),
        ("checkpoints_collected", {"why": "w", "answered": [], "silent": ["b", "c"]}, "(w): b, c did not answer"),
        ("checkpoints_collected", {"why": "w", "answered": [], "silent": []}, "(w): no agent was at work"),
    ],
)
def test_what_an_event_does_not_know_leaves_no_hole_in_its_sentence(
    kind: str, data: dict[str, object], words: str
) -> None:
    assert tell(Event(kind, None, None, AgentId("bob"), None, data)).endswith(words)


@DETERMINISTIC
@given(st.text())
def test_no_text_from_outside_can_move_the_cursor(text: str) -> None:
    assert clean(text).isprintable()
    assert len(clean(text, 20)) <= 20


@DETERMINISTIC
@given(st.integers(0, 10**12))
def test_lengths_are_short(ms: int) -> None:
    assert len(length(ms)) <= 10
    assert len(rough(ms)) <= 10
    assert ago(0, ms).endswith(("ago", "now"))
    assert within(ms, 0).startswith(("in ", "now"))


@pytest.mark.parametrize(
    "ms,words",
    [
        (0, "0ms"),
        (999, "999ms"),
        (1_500, "1.5s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (252_000, "4m 12s"),
        (90_000_000, "1d 1h"),
    ],
)
def test_a_length_of_time_reads_at_a_glance(ms: int, words: str) -> None:
    assert length(ms) == words


def test_a_pause_begins_with_the_failure_before_it() -> None:
    """What was before the first attempt was no pause, whatever the task is doing now."""

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("work")
        await asyncio.sleep(5)
        lease = await watch.claim(agent="bob")
        assert lease is not None
        await lease.release(delay="10m")
        await asyncio.sleep(1)
        told = await why(stage.store, task)
        assert [span.kind for span in told.spent] == ["ready", "held", "paused"]

    play(scene)
