"""`allswell demo`: real processes, a night that goes wrong, nothing lost, and a page that shows it."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from allswell.demo.faces import ANSWER, Screen
from allswell.domain.names import AgentId, CommandId, Millis, QuestionId, TaskId, Token
from allswell.domain.question import REPLY, Question
from allswell.domain.task import Attempt, Record, Spec, Task
from allswell.doors.cli.timeline import Night, page
from tests import patience
from tests.doors.shapes.outside import check

NASTY = "<script>alert(1)</script> \x1b[31m$title \"'&"


class Page(HTMLParser):
    """What a browser would do with a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href") or name.startswith("on")]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _night(name: str) -> Night:
    id_, now = TaskId("t_1"), Millis(1_000)
    task = Task(id_, name, None, "", 1, 0, "done", Millis(0), now, Spec(), Record(), 0)
    tried = [
        Attempt(id_, Token(1), AgentId(name), Millis(0), Millis(500), "failed:network", CommandId("a"), name, "{}"),
        Attempt(id_, Token(2), AgentId(name), Millis(200), now, "done", CommandId("b")),
    ]
    asked = Question(QuestionId("q_1.1"), id_, None, "agent", name, (REPLY,), Millis(0), name, now, "reply", name, name)
    return Night(name, name, True, [task], tried, [asked], [])


def test_the_page_is_one_file_that_loads_nothing_and_escapes_everything() -> None:
    text = page(_night(NASTY))
    found = Page(text)
    assert found.open == []
    assert "script" not in found.tags
    assert found.links == []
    assert "default-src 'none'" in text
    assert "\x1b" not in text
    assert text.count("&lt;script&gt;") >= 5
    assert "http" not in re.sub(r"http-equiv", "", text)


def test_a_night_without_anything_is_a_page_too() -> None:
    Page(page(Night("nothing", "All's well.", True, [], [], [], [])))


def test_a_typed_answer_is_taken_and_silence_is_answered() -> None:
    from rich.console import Console

    question = _night("x").questions[0]
    screen = Screen(Console(width=80), patience=1_000)
    assert screen.ask(question) is None
    for key in "the left onn\x7fe\n":
        screen.pressed(key)
    assert screen.ask(question) == "the left one"
    hasty = Screen(Console(width=80), patience=-1)
    assert hasty.ask(question) == ANSWER


@pytest.mark.realtime
def test_an_agent_hangs_its_work_is_kept_comes_back_and_gets_done(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "allswell", "demo", "--keep", str(tmp_path)]
    played = subprocess.run(command, capture_output=True, text=True, check=True, timeout=patience.SECONDS)
    story = (
        "waiting for the model",
        "nothing showed progress for 3s; ",
        "+def parse(line):",
        "1 file written to",
        "All's",
    )
    said = played.stdout + played.stderr
    assert [part for part in story if part not in said] == []
    assert (tmp_path / "parser.py").read_text().endswith('for word in line.split(",")]\n')


@pytest.mark.realtime
def test_the_night_loses_nothing_and_leaves_a_timeline(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "allswell", "demo", "--night", "--json", "--keep", str(tmp_path)]
    played = subprocess.run(command, capture_output=True, text=True, timeout=patience.SECONDS, check=False)
    assert played.returncode == 0, played.stderr
    assert check("demo", played.stdout) == "Night"
    told = json.loads(played.stdout)
    assert (told["lost"], told["duplicated"], told["unaccounted"], told["well"]) == (0, 0, 0, True)
    assert told["killed"] == 1
    assert told["refused"] >= 1, "the one that came back too late"
    assert len(told["rescued"]) == 5
    text = Path(told["timeline"]).read_text(encoding="utf-8")
    assert Page(text).open == []
    assert "fix the flaky test" in text
