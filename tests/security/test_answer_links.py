"""What the links in alerts do not give away, tried on a real server (docs/threat-model.md)."""

import asyncio
import contextlib
import os
import random
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from allswell.app import make_watch, store_for
from allswell.domain.access.answer_link import LINK_SECRET, VALID_FOR, LinkSecret, read_token
from allswell.domain.ids import QuestionId
from allswell.domain.question import REPLY, SKIP, AnswerAction, Option
from allswell.engine.access.gate import Gate
from allswell.engine.access.keys import Keyring, LinkService
from allswell.engine.ids import Ids
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.testing.sim.process import engine_of
from tests.engine.stage import Stage, play
from tests.interfaces.cli.upkeep import run
from tests.interfaces.http.served import Answer, Served, serving, started
from tests.interfaces.web.test_browser import ask
from tests.interfaces.web.visit import Visit, answer_links

PUBLIC = "https://watch.example.org"
THERE = {"Host": "watch.example.org", "Origin": PUBLIC}
YES = {"answer": "yes"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server behind a proxy that speaks TLS, as the settings say."""
    folder = tmp_path_factory.mktemp("links")
    (folder / "allswell.toml").write_text(f'public_url = "{PUBLIC}"\n')
    with serving(folder) as started:
        yield started


def paths(server: Served, question: str, lasts: int = VALID_FOR) -> list[str]:
    links = answer_links(server, question, origin=PUBLIC, lasts=lasts)
    return [link.url.removeprefix(PUBLIC) for link in links]


def open_link(server: Served, path: str, **headers: str) -> Answer:
    return Visit(server).get(path, **{"Host": THERE["Host"], **headers})


def press(server: Served, path: str, form: dict[str, str] | None = None, **headers: str) -> Answer:
    return Visit(server).post(path, YES if form is None else form, **{**THERE, **headers})


def choice(server: Served, question: str) -> str | None:
    shown = server.ok("GET", f"/questions/{question}", key="viewer")
    return None if shown["choice"] is None else str(shown["choice"])


def test_whoever_looks_at_addresses_in_advance_changes_nothing(server: Served) -> None:
    task, question = ask(server, "looked at", "Left or right?")
    before = server.ok("GET", f"/tasks/{task}", key="viewer")
    for path in paths(server, question):
        for _ in range(2):
            assert open_link(server, path).status == 200
        with contextlib.closing(server.connect()) as connection:
            connection.request("HEAD", path, headers={"Host": THERE["Host"]})
            assert connection.getresponse().read() == b""
        for form in ({}, {"answer": ""}, {"words": "yes"}):  # nor does a form that is not the page's
            refused = press(server, path, form)
            assert (refused.status, b"use the button" in refused.body) == (422, True)
    assert choice(server, question) is None
    assert server.ok("GET", f"/tasks/{task}", key="viewer") == before


def test_a_link_works_once_and_a_second_tap_answers(server: Served) -> None:
    _, question = ask(server, "tapped", "Left or right?")
    left, right = paths(server, question)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda path: press(server, path).status, [left, right, left, right]))
    assert sorted(answers) == [200, 404, 404, 404]
    assert choice(server, question) == ("left" if 200 in answers[::2] else "right")
    assert {press(server, path).status for path in (left, right)} == {404}


def test_a_link_that_is_wrong_expired_used_or_revoked_is_answered_alike(server: Served) -> None:
    _, question = ask(server, "alike", "Left or right?")
    left, right = paths(server, question)
    (expired, _) = paths(server, question, lasts=-1)
    _, other = ask(server, "used", "Left or right?")
    used, _ = paths(server, other)
    assert press(server, used).status == 200
    changed = left[:-1] + ("A" if left[-1] != "A" else "B")
    tried = [expired, used, changed, "/answer/x", "/answer/" + "A" * 80, "/answer/%00%ff", "/answer/" + "A" * 2_000]
    told = {seen(way(server, path)) for path in tried for way in (open_link, press)}
    assert len(told) == 1
    ((status, body),) = told
    assert (status, b"This link does not work" in body) == (404, True)
    assert choice(server, question) is None
    revoked = run("key", "revoke-links", cwd=server.folder)
    assert (revoked.code, "stopped working" in revoked.out) == (0, True)
    assert {seen(way(server, path)) for path in (left, right) for way in (open_link, press)} == told
    assert choice(server, question) is None
    fresh, _ = paths(server, question)
    assert press(server, fresh).status == 200


def seen(answer: Answer) -> tuple[int, bytes]:
    return answer.status, answer.body


def test_each_link_costs_the_same_looks_whatever_is_wrong_with_it() -> None:
    """Else the time that an answer takes would tell a link that was signed from one that was not."""

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        question = await asked(watch)
        service = LinkService(watch)
        good, *_ = await service.sign_for(question, PUBLIC, "phone", "info.0")
        old, *_ = await service.sign_for(question, PUBLIC, "phone", "info.0", lasts=0)
        seen = []
        for url in (good.url, old.url, f"{PUBLIC}/answer/nothing", good.url[:-3]):
            counting = Counting(watch, [])
            offered = await LinkService(counting).offered(url.removeprefix(f"{PUBLIC}/answer/"))  # type: ignore[arg-type]
            assert (offered is not None) == (url == good.url)
            seen.append(counting.calls)
        assert {"recall", "now", "view_question"} <= set(seen[0])
        assert seen == [seen[0]] * 4

    play(scene)


def test_a_wrong_secret_costs_the_same_looks_whatever_its_name() -> None:
    """Else the time that an answer takes would tell which names have keys, and which of them are in use."""

    async def scene(stage: Stage) -> None:
        gate = Gate(engine_of(stage.watch), Ids(stage.clock.wall, random.Random(7).getrandbits))
        texts = [(await gate.keyring.create(name, ["viewer"]))[1] for name in ("used", "unused")]
        await gate.admit(texts[0])
        seen = []
        for name in ("used", "unused", "nobody", "used", "nobody"):
            counting = Counting(stage.watch, [])
            gate.keyring = Keyring(counting)  # type: ignore[arg-type]
            with pytest.raises(Refused, match="not known here"):
                await gate.admit(f"awk_{name}_{'A' * 43}")
            seen.append(counting.calls)
        assert seen == [["recall"]] * 5
        gate.keyring = Keyring(counting := Counting(stage.watch, []))  # type: ignore[arg-type]
        assert (await gate.admit(texts[0])).name == "used"
        assert counting.calls == []

    play(scene)


class Counting:
    """A watch, and what is asked of it."""

    def __init__(self, behind: object, calls: list[str]) -> None:
        self._behind, self.calls = behind, calls

    def __getattr__(self, name: str) -> object:
        self.calls.append(name)
        wanted = getattr(self._behind, name)
        return Counting(wanted, self.calls) if name == "views" else wanted


async def asked(watch: Watch) -> QuestionId:
    task = await watch.submit("ask", role="build")
    lease = await watch.claim(agent="ada", task=task)
    assert lease is not None
    return QuestionId(await lease.ask("Which way?", [Option("left", "Left", AnswerAction.RETRY), REPLY, SKIP]))


def test_a_link_opens_nothing_else(server: Served) -> None:
    task, question = ask(server, "of one task", "Left or right?")
    _, other = ask(server, "another task", "Something else entirely?")
    left, right = paths(server, question)
    visit = Visit(server)
    shown = visit.get(left, Host=THERE["Host"])
    assert visit.cookies == {}
    assert b"Turn left" in shown.body
    assert b"of one task" in shown.body  # which of two alike questions it is, as the alert says
    for word in (
        b"Turn right",
        b"Something else",
        other.encode(),
        b"another task",
        task.encode(),
        b"csrf",
        b"<a ",
        b"/tasks",
    ):
        assert word not in shown.body, word
    token = left.removeprefix("/answer/")
    for headers in ({"Authorization": f"Bearer {token}"}, {"Authorization": f"Bearer awk_link.phone_{token}"}):
        assert server.call("GET", "/questions", key=None, headers=headers).status == 401
    for cookie in (token, f"aws_link.phone_{token}"):
        name = f"allswell-{server.place[1]}"
        assert Visit(server, {name: cookie, "__Host-allswell": cookie}).get("/").status == 303
    for path in (f"{left}/", f"{left}/..", f"{left}?option=right", f"/answer/{token}/{right.rpartition('/')[2]}"):
        assert b"Turn right" not in visit.get(path, Host=THERE["Host"]).body
    assert press(server, left, {**YES, "option": "right", "question": other}).status == 200
    assert (choice(server, question), choice(server, other)) == ("left", None)


def test_the_address_of_a_link_goes_nowhere_else(server: Served) -> None:
    _, question = ask(server, "headers", "Left or right?")
    left, _ = paths(server, question)
    for answer in (open_link(server, left), open_link(server, "/answer/x"), press(server, left)):
        assert answer.headers["referrer-policy"] == "strict-origin"  # never a path
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-robots-tag"].startswith("noindex")
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "strict-transport-security" in answer.headers
        assert left.removeprefix("/answer/").encode() not in answer.body
    assert server.process.stderr is not None
    lines = os.read(server.process.stderr.fileno(), server.unread) if server.unread else b""
    assert b"/answer/" not in lines, "no log has it"


def test_another_page_presses_no_button(server: Served) -> None:
    _, question = ask(server, "forged", "Left or right?")
    left, _ = paths(server, question)
    for origin in ("https://evil.example", "null", "http://watch.example.org"):
        assert press(server, left, Origin=origin).status == 403
    assert press(server, left, Host="evil.example").status == 421
    assert open_link(server, left, Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="iframe").status == 403
    assert open_link(server, left, Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="document").status == 200
    assert choice(server, question) is None


def test_under_the_public_name_the_page_s_cookie_is_for_tls_alone(server: Served) -> None:
    """A proxy speaks TLS there, whatever the server itself was told: `up --serve` has no option for it."""
    there, here = Visit(server), Visit(server)
    answer = there.post("/login", {"key": server.keys["viewer"]}, **THERE)
    assert (answer.status, list(there.cookies)) == (303, ["__Host-allswell"])
    assert "; secure" in answer.headers["set-cookie"].lower()
    assert there.get("/", Host=THERE["Host"]).status == 200
    assert here.post("/login", {"key": server.keys["viewer"]}).status == 303
    assert list(here.cookies) == [f"allswell-{server.place[1]}"]
    assert Visit(server, there.cookies).get("/").status == 303, "nor does it hold under another name"


@pytest.mark.parametrize("path", ["/answer/x/", "/enter/?link=x"])
def test_no_address_with_a_secret_is_redirected_to_an_open_connection(server: Served, path: str) -> None:
    """With a slash at its end it is another address, and a browser is sent to the one without."""
    assert open_link(server, path).headers["location"] == f"{PUBLIC}{path.replace('/?', '?').rstrip('/')}"


def test_words_are_bounded_and_reach_only_what_asked_for_them(server: Served) -> None:
    task = server.ok("POST", "/tasks", {"tasks": [{"name": "words", "role": "build"}]}, key="submitter")["task_ids"][0]
    (claim,) = server.ok("POST", "/claims", {"task_id": task}, key="ada")["claims"]
    path = f"/tasks/{task}/leases/{claim['token']}/ask"
    question = server.ok("POST", path, {"text": "Which?"}, key="ada")["question_id"]
    (link,) = paths(server, question)
    for words in ("", "  ", "x" * 4_001):
        assert press(server, link, {**YES, "words": words}).status == 422
    assert press(server, link, {**YES, "words": "x" * 40_000}).status == 404
    assert choice(server, question) is None
    assert press(server, link, {**YES, "words": "Beth"}).status == 200
    _, other = ask(server, "no words", "Left or right?")
    left, _ = paths(server, other)
    assert press(server, left, {**YES, "words": "and pay"}).status == 200
    assert server.ok("GET", f"/questions/{other}", key="viewer")["answer"] == ""


def test_strangers_are_slowed_down_and_keep_no_link_from_working(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text(f'public_url = "{PUBLIC}"\n')
    with serving(tmp_path) as server:
        _, question = ask(server, "in a storm", "Left or right?")
        left, _ = paths(server, question)
        statuses = [open_link(server, f"/answer/guess{number}").status for number in range(80)]
        assert statuses[:60] == [404] * 60
        assert statuses[-1] == 429
        refused = open_link(server, "/answer/guess")
        assert int(refused.headers["retry-after"]) >= 1
        assert press(server, left).status == 200
        used = [press(server, left).status for _ in range(80)]
        assert (used[0], used[-1]) == (404, 429), "nor is a link tried without an end"


def test_no_key_sees_the_secret_and_no_process_shows_it(server: Served) -> None:
    _, question = ask(server, "secret", "Left or right?")
    left, _ = paths(server, question)
    with contextlib.closing(sqlite3.connect(server.folder / ".allswell" / "allswell.db")) as database:
        tables = "\n".join(database.iterdump())
    kept = asyncio.run(secret_of(server.store))
    assert kept.secret in tables, "it is the store's"
    assert read_token(left.removeprefix("/answer/"), kept.secret) is not None
    assert server.call("POST", "/views/recall", {"key": LINK_SECRET}, key="admin").status == 403
    shown = server.call("POST", "/views/view_kept", {"prefix": ""}, key="admin")
    swapped = {"key": LINK_SECRET, "before": None, "after": "mine"}
    assert server.call("POST", "/views/swap", swapped, key="admin").status == 403
    for text in (
        shown.body,
        *(server.call("GET", path, key="admin").body for path in ("/keys", "/settings", "/events")),
    ):
        assert kept.secret.encode() not in text
    for name in ("cmdline", "environ"):
        assert kept.secret.encode() not in Path(f"/proc/{server.process.pid}/{name}").read_bytes()
    for words in (("key", "list", "--all", "--json"), ("config", "--json"), ("events", "--json")):
        assert kept.secret not in run(*words, cwd=server.folder).out


async def secret_of(store: str) -> LinkSecret:
    async with make_watch(store_for(store), sweeping=False) as watch:
        return msgspec.json.decode(await watch.recall(LINK_SECRET) or "", type=LinkSecret)


@pytest.mark.parametrize("settings", ["", 'public_url = "http://watch.example.org"\n'])
def test_without_a_public_address_over_tls_no_link_works(server: Served, tmp_path: Path, settings: str) -> None:
    _, question = ask(server, "no address", "Left or right?")
    left, _ = paths(server, question)
    (tmp_path / "allswell.toml").write_text(settings)
    with started(tmp_path, server.store, "--listen", "127.0.0.1:0") as (process, url):
        plain = Served(server.store, url, server.keys, process)
        assert Visit(plain).get(left).status == 404
        assert Visit(plain).post(left, YES).status == 404
        assert Visit(plain).get(left, Host=THERE["Host"]).status == 421
    assert choice(server, question) is None
