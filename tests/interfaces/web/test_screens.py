"""The screens behind the first one, drawn by a real server from real data: what a reader must see; text stays text."""

import re
from html import escape

import pytest

from allswell.interfaces.web.screen import agent_place, place_of, plain
from tests.interfaces.http.served import Served
from tests.interfaces.web.scene import HOSTILE
from tests.interfaces.web.visit import Visit, logged_in

ASKED = "q_1m7mpcd470ysr5s4.1"


def task_of(served: Served, name: str) -> str:
    """The id of the only task with this name."""
    (found,) = served.ok("GET", f"/tasks?all=true&limit=1000&name={name.replace(' ', '+')}", key="viewer")["tasks"]
    return str(found["task_id"])


def flaky(served: Served) -> str:
    found = served.ok("GET", "/tasks?limit=1000", key="viewer")["tasks"]
    return str(next(one["task_id"] for one in found if one["name"].startswith("fix the flaky test")))


def shown(visit: Visit, path: str, *words: str) -> str:
    """A screen that has these words; whatever agents said in it is text."""
    got = visit.get(path)
    assert got.status == 200, (path, got.status, got.body[-400:])
    text = got.body.decode()
    assert "<img src=x" not in text
    assert "<script>alert" not in text
    assert not re.search(r"<[^>]* (style|on\w+)=", text), "no style and no script stands in a page"
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids)), [one for one in set(ids) if ids.count(one) > 1]
    for tag in re.findall(
        r"<(?:a|button|summary|input|textarea|select)\b[^>]*>", text.split("<main", 1)[1].split("</main>")[0]
    ):
        hidden = 'type="hidden"' in tag
        assert hidden or " id=" in tag or tag.startswith("<summary"), f"morphing loses the focus of {tag}"
    for word in words:
        assert word in text, (path, word)
    return text


@pytest.fixture(scope="module")
def operator(night: Served) -> Visit:
    return logged_in(night)


def test_a_task_shows_its_life_why_and_attempts(operator: Visit, night: Served) -> None:
    task = task_of(night, "test")
    text = shown(operator, f"/tasks/{task}", "“test” has been held by shell.1", "211 of 240 passed", "88%")
    assert "failed (a network error): “connection reset by peer”" in text
    kinds = re.findall(r'<(?:rect|line) class="(waiting|queued|failed|paused|working)"', text)
    assert list(dict.fromkeys(kinds)) == ["waiting", "queued", "failed", "paused", "working"]
    assert f'href="/tasks/{task_of(night, "build")}"' in text
    assert re.search(r'href="/runs/r_\w+"', text)
    assert 'href="/agents/shell.1"' in text
    hostile = shown(operator, f"/tasks/{flaky(night)}")
    assert str(escape(HOSTILE)).replace("&#x27;", "&#39;") in hostile


def test_the_question_of_a_task_stands_on_its_screen_with_its_buttons(operator: Visit, night: Served) -> None:
    task = task_of(night, "migrate the database")
    shown(operator, f"/tasks/{task}", "public.users", "Answer in words", "$2.40", "Cancel it")
    seen = logged_in(night, "viewer").get(f"/tasks/{task}").body.decode()
    assert "Two tables are called users" in seen
    assert "/answer" not in seen
    assert "Cancel it</button>" not in seen


def test_a_button_that_ends_work_is_neither_first_nor_dark_and_is_taken_back_by_a_retry(
    operator: Visit, night: Served
) -> None:
    (task,) = night.ok("POST", "/tasks", {"tasks": [{"name": "in words", "role": "build"}]})["task_ids"]
    (claim,) = night.ok("POST", "/claims", {"task_id": task}, key="ada")["claims"]
    word = f"/tasks/{task}/leases/{claim['token']}/ask"
    question = night.ok("POST", word, {"text": "Which one?"}, key="ada")["question_id"]
    card = shown(operator, f"/tasks/{task}").split(f'id="q-{question}"', 1)[1].split("</form>")[0]
    before, after = card.split("Really? It ends without being done.", 1)
    assert 'value="reply"' in before
    assert 'value="skip"' in after
    assert "it ends without being done</small>" in before, "what it does stands beside its label"
    assert 'class="first"' not in after
    told = operator.post(f"/questions/{question}/answer", {"option": "skip"}, HX_Request="true").body.decode()
    assert f"To take it back: `allswell retry {task} --with-dependents`." in told
    assert operator.post(f"/tasks/{task}/retry", {"with_dependents": "on"}, HX_Request="true").status == 200


def test_what_an_attempt_prints_is_shown_as_it_grows_without_what_a_terminal_acts_upon(
    operator: Visit, night: Served
) -> None:
    task = task_of(night, "refactor the parser")
    folder = night.folder / ".allswell" / "transcripts"
    folder.mkdir(0o700, exist_ok=True)
    printed = folder / f"{task}.1.stdout"
    printed.write_bytes(b"\x1b[31mred\x1b[0m   kept\n" + HOSTILE.encode() + b"\n" + b"line\n" * 60_000)
    (folder / f"{task}.1.stderr").write_bytes(b"\x1b]0;a title\x07it warns\n")
    for file in folder.iterdir():
        file.chmod(0o600)
    shown(operator, f"/tasks/{task}", "it warns", "all of it", 'role="log"')
    end = shown(operator, f"/tasks/{task}/log", "what stands before this", "it has ended")
    assert "red   kept" not in end
    text, steps = end, 0
    while path := re.findall(r'id="earlier" href="([^"]+)"', text):
        text = shown(operator, path[0].replace("&amp;", "&"))
        steps += 1
    assert steps == 3
    assert "red   kept" in text
    assert "\x1b" not in text
    with printed.open("ab") as more:
        more.write(b"one more line\n")
    shown(operator, f"/tasks/{task}/log", "one more line")
    shown(operator, f"/tasks/{task}/diff", "nothing is known of what it changed")


def test_a_task_is_called_off_and_handed_over_again_by_its_buttons(operator: Visit, night: Served) -> None:
    made = night.ok("POST", "/tasks", {"tasks": [{"name": "not for long", "role": "build"}]}, key="submitter")
    task = made["task_ids"][0]
    assert logged_in(night, "viewer").post(f"/tasks/{task}/cancel").status == 403
    assert operator.post(f"/tasks/{task}/cancel", {"reason": "a change of plans"}).status == 303
    text = shown(operator, f"/tasks/{task}", "a change of plans", "Try it again", "Dismiss")
    assert "Cancel it" not in text
    assert operator.post(f"/tasks/{task}/retry").status == 303
    again = re.search(r'id="retried-as" href="/tasks/(t_\w+)"', shown(operator, f"/tasks/{task}"))
    assert again is not None
    shown(operator, f"/tasks/{again[1]}", f'id="retry-of" href="/tasks/{task}"')
    night.ok("POST", f"/tasks/{again[1]}/cancel", {}, key="operator")
    assert operator.get("/tasks/t_nowhere").status == 404


def test_a_run_shows_what_needs_what_and_how_its_time_was_spent(operator: Visit, night: Served) -> None:
    found = night.ok("GET", "/runs", key="viewer")["runs"]
    run = next(one["run_id"] for one in found if one["name"] == "release")
    text = shown(operator, f"/runs/{run}", "Of its 4 tasks", "the run&#39;s deadline is reached")
    boxes = dict(re.findall(r'class="node (\w+)" aria-label="(\w+),', text))
    assert boxes == {"done": "build", "held": "test", "waiting": "publish"}
    assert len(re.findall(r'<path class="edge', text)) == 3
    assert len(re.findall(r'<path class="edge met"', text)) == 1
    shown(operator, "/runs", f'href="/runs/{run}"', "release")
    assert operator.get("/runs/r_nowhere").status == 404
    assert operator.get("/runs?from=x").status == 400


def test_places_and_lines() -> None:
    assert place_of("t_1") == "/tasks/t_1"
    assert place_of(ASKED) == f"/tasks/t_1m7mpcd470ysr5s4#q-{ASKED}"
    assert agent_place("ada/lint") == "/agents/ada%2Flint"
    assert plain("\x1b[1;32mok\x1b[0m\tdone\x00\r") == "ok  done·"
