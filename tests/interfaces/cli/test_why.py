"""`allswell why`: the chain in words, what comes next, what to type, and how the time was spent."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.interfaces.cli.console import millis
from tests.interfaces.cli.scene import has_all, told, typed

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store with a story in it, which nobody changes."""
    return told(tmp_path_factory.mktemp("story") / "watch.db")


@pytest.mark.parametrize(
    "subject,sentences",
    [
        (
            "deploy",
            [
                "“deploy” is waiting for 13 tasks.",
                "The longest wait: └ “part 0” is waiting for an answer.",
                "ivy asked 5",
                "“Two tables are called users. Which one?”",
                "and 8 more things",
                "then after the answer, “part 0” can be claimed",
                "then “deploy” still waits for 12 more things",
                'reply "your words"',
            ],
        ),
        (
            "build",
            [
                "“build” is waiting for 1 task.",
                "└ “compile” has been held by hal for 5",
                "“half of it is here” (50%)",
                "(it was to be renewed every 20s), but it is still with hal.",
                "No process enforces time limits",
                "allswell watch",
                "when “compile” is done, “build” can be claimed",
            ],
        ),
        (
            "summarise 400 issues",
            [
                "is waiting for an answer.",
                "has timed out 3 times.",
                "increase_timeout",
                "bob, attempt 1: reached its time limit",
                "dan, attempt 3: reached its time limit",
                "for a human to answer",
            ],
        ),
        (
            "call the model",
            [
                "it needs “anthropic”, which asked to wait.",
                "“anthropic” can be used again, and the task can be claimed",
            ],
        ),
        (
            "read the specs",
            ["failed", "a bad request is not retried", "The last report of eve said: “400: bad request"],
        ),
        ("use the specs", ["“use the specs” was skipped", "└ “read the specs” failed"]),
        (
            "flaky call",
            [
                "is done: gus finished it",
                "in attempt 2, 16s after it was submitted",
                "fay, attempt 1: failed (a network error): “ConnectionError: reset by peer”",
                "How the time was spent (16s in all)",
            ],
        ),
        ("part 3", ["“part 3” has been ready for", "allswell claim --agent NAME"]),
        (
            "nightly",
            [
                "The run “nightly” has been open for",
                "Of its 3 tasks: 2 waiting and 1 held.",
                "the run's deadline is reached: whatever is still open fails",
            ],
        ),
    ],
)
def test_the_chain_is_told_in_words(story: str, capsys: Capture, subject: str, sentences: Sequence[str]) -> None:
    code, said, complained = typed(capsys, "why", subject, "--store", story)
    assert (code, complained) == (0, "")
    has_all(said, sentences)
    assert "\x1b" not in said, "no colour where there is no terminal, and no escapes of an agent's"


def test_a_question_is_explained_with_every_way_to_answer_it(story: str, capsys: Capture) -> None:
    _, chain, _ = typed(capsys, "why", "part 0", "--json", "--store", story)
    id_ = json.loads(chain)["chain"][-1]["question_id"]
    code, said, _ = typed(capsys, "why", id_, "--store", story)
    assert code == 0
    has_all(
        said, ["which waits for the answer", f'allswell answer {id_} reply "your words"', f"allswell answer {id_} skip"]
    )


def test_json_is_the_same_chain_as_data(story: str, capsys: Capture) -> None:
    code, said, _ = typed(capsys, "why", "build", "--json", "--store", story)
    data = json.loads(said)
    assert code == 0
    assert [(link["kind"], link["name"], link["state"]) for link in data["chain"]] == [
        ("task", "build", "waiting"),
        ("task", "compile", "held"),
    ]
    assert data["todo"][0]["command"] == f"allswell watch --store {story}"
    assert data["seen_at"] > data["chain"][1]["since_at"] > "2"


def test_the_time_of_a_finished_task_adds_up(story: str, capsys: Capture) -> None:
    _, said, _ = typed(capsys, "why", "flaky call", "--json", "--store", story)
    spans = json.loads(said)["spent"]
    assert [span["kind"] for span in spans] == ["held", "paused", "held"]
    assert sum(millis(span["ended_at"]) - millis(span["began_at"]) for span in spans) == 16_000
    assert all(one["ended_at"] == two["began_at"] for one, two in pairwise(spans))


def test_what_is_not_there_is_answered_with_what_is_near(story: str, capsys: Capture) -> None:
    code, said, complained = typed(capsys, "why", "deplay", "--store", story)
    assert (code, said) == (2, "")
    assert "did you mean 'deploy'" in complained


@pytest.mark.parametrize("subject", ["", "t_", "q_x", "r_x", "\x00", "--", "t_\x1b[31m", "q_" + "9" * 5_000])
def test_nothing_that_can_be_asked_is_a_traceback(story: str, capsys: Capture, subject: str) -> None:
    code, _, complained = typed(capsys, "why", subject, "--store", story)
    assert code == 2
    assert "Traceback" not in complained
    assert "bug" not in complained
