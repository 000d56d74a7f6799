"""What the page keeps out: the rules of docs/threat-model.md, each tried on a real server over a real socket."""

import asyncio
from pathlib import Path

import pytest

from allswell.app import make_watch, store_for
from allswell.engine.access.keys import Keyring
from allswell.errors import Refused
from allswell.interfaces.http.listener import ListenAddress
from allswell.interfaces.web.app import DEEDS, LIVE, SCREENS
from tests.interfaces.http.served import Served, started
from tests.interfaces.web.scene import HOSTILE
from tests.interfaces.web.visit import Visit, link_for, logged_in


def empty_store(folder: Path) -> str:
    """A store that nobody has a key for."""
    store = f"sqlite:///{folder}/.allswell/allswell.db"

    async def make() -> None:
        async with make_watch(store_for(store), sweeping=False):
            pass

    asyncio.run(make())
    return store


def filled(path: str) -> str:
    """A path with something in each of its places."""
    return path.replace("{", "no-such-").replace("}", "")


def end_of_journal(served: Served) -> int:
    return len(served.ok("GET", "/events?limit=1000", key="viewer")["events"])


def question_of(served: Served) -> str:
    """The question that the night begins with."""
    found = served.ok("GET", "/questions", key="viewer")["questions"]
    return str(next(one["question_id"] for one in found if "Two tables" in one["text"]))


def test_without_a_session_there_is_nothing_but_the_door(night: Served) -> None:
    for cookies in ({}, {cookie_of(night): "aws_operator_nonsense"}, {cookie_of(night): night.keys["operator"]}):
        visit = Visit(night, dict(cookies))
        for screen in SCREENS:
            shown = visit.get(filled(screen.path))
            assert shown.status == 303, screen.path
            assert shown.headers["location"].startswith("/login?")
            assert visit.get(LIVE + filled(screen.path).rstrip("/")).status == 401
        for deed in DEEDS:
            assert visit.post(filled(deed.path)).status == 401, deed.path
        assert visit.post("/logout").status == 401


def cookie_of(served: Served) -> str:
    return f"allswell-{served.place[1]}"


def test_a_link_works_once_and_looking_at_it_does_not_use_it(night: Served) -> None:
    link = link_for(night, "viewer")
    visit = Visit(night)
    for _ in range(2):
        assert b"Open the page" in visit.get(f"/enter?link={link}").body
    assert visit.cookies == {}
    assert visit.post("/enter", {"link": link}).status == 303
    assert visit.get("/").status == 200
    again = Visit(night)
    refused = again.post("/enter", {"link": link})
    assert (refused.status, again.cookies) == (401, {})
    assert b"works once" in refused.body
    older = link_for(night, "viewer")
    link_for(night, "viewer")
    assert b"newer one has taken its place" in Visit(night).post("/enter", {"link": older}).body
    assert Visit(night).post("/enter", {"link": "nonsense"}).status == 401


def test_the_first_start_prints_a_link_and_the_next_one_does_not(tmp_path: Path) -> None:
    store = empty_store(tmp_path)
    lines = []
    for _ in range(2):
        with started(tmp_path, store, "--listen", "127.0.0.1:0") as (process, url):
            assert process.stderr is not None
            lines.append(process.stderr.readline())
            if len(lines) == 1:
                visit = Visit(Served(store, url, {}, process))
                link = lines[0].split("link=")[1].split()[0]
                assert visit.post("/enter", {"link": link}).status == 303
                assert b"<b>browser</b>, for: operator" in visit.get("/").body
            with pytest.raises(Refused) as refused:
                link_for(Served(store, url, {}, process), "brwoser")
            assert (refused.value.code, refused.value.hint) == ("unknown_key", "did you mean browser?")
            process.terminate()
            assert process.wait(30) == 0
    assert "link=" not in lines[1]
    assert "allswell key link" in lines[1]


@pytest.mark.parametrize(
    "address, page",
    [
        (ListenAddress(), "http://127.0.0.1:8420"),
        (ListenAddress("0.0.0.0", certificate="c", private_key="k", names=("watch.org",)), "https://watch.org:8420"),  # noqa: S104
        (ListenAddress("10.0.0.1", behind_proxy=True, names=("watch.org", "other")), "https://watch.org"),
    ],
)
def test_the_link_leads_to_the_name_that_a_browser_knows(address: ListenAddress, page: str) -> None:
    assert address.page == page


def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(night: Served) -> None:
    answer = Visit(night).post("/login", {"key": night.keys["viewer"]})
    told = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= told
    assert "secure" not in told  # this server speaks no TLS
    shown = Visit(night).post("/login", {"key": "awk_viewer_wrong"})
    assert (shown.status, "set-cookie" in shown.headers) == (401, False)


def test_over_tls_the_cookie_is_for_tls_and_this_host_alone(tmp_path: Path) -> None:
    store = empty_store(tmp_path)
    with started(tmp_path, store, "--listen", "127.0.0.1:0", "--behind-proxy") as (process, url):
        served = Served(store, url, {}, process)
        visit = Visit(served)
        assert process.stderr is not None
        link = process.stderr.readline().split("link=")[1].split()[0]
        answer = visit.post("/enter", {"link": link}, Origin=url.replace("http:", "https:"))
        assert answer.status == 303
        assert answer.headers["set-cookie"].startswith("__Host-allswell=aws_browser_")
        assert "; secure" in answer.headers["set-cookie"].lower()
        process.terminate()


def test_a_cookie_opens_the_page_and_nothing_else(night: Served) -> None:
    """No call of the API can be forged from a page, since none looks at cookies."""
    visit = logged_in(night, "admin")
    assert visit.get("/api/v1/status").status == 401
    assert visit.post("/api/v1/tasks").status == 401


@pytest.mark.parametrize("wrong", ["", "0" * 64, "another's"])
def test_a_form_without_the_token_of_its_session_does_nothing(night: Served, wrong: str) -> None:
    visit, question = logged_in(night), question_of(night)
    token = logged_in(night).csrf if wrong == "another's" else wrong
    assert token != visit.csrf
    visit.csrf = ""
    refused = visit.post(f"/questions/{question}/answer", {"option": "skip"}, csrf=token)
    assert refused.status == 403
    assert night.ok("GET", f"/questions/{question}", key="viewer")["closed_at"] is None
    assert visit.post("/logout", csrf=token).status == 403
    assert visit.get("/").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Host": "rebound.example"},
        {"Origin": "", "Sec_Fetch_Site": "cross-site"},
        {"Origin": "", "Sec_Fetch_Site": "same-site", "Sec_Fetch_Dest": "document"},
    ],
)
def test_another_page_can_post_nothing(night: Served, headers: dict[str, str]) -> None:
    visit, question = logged_in(night), question_of(night)
    refused = visit.post(f"/questions/{question}/answer", {"option": "skip"}, **headers)
    assert refused.status in (403, 421)
    assert Visit(night).post("/login", {"key": night.keys["operator"]}, **headers).status in (403, 421)
    assert night.ok("GET", f"/questions/{question}", key="viewer")["closed_at"] is None


def test_a_link_from_elsewhere_may_lead_to_the_page(night: Served) -> None:
    from_mail = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "document"}
    assert Visit(night).get("/login", **from_mail).status == 200
    framed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "iframe"}
    assert logged_in(night).get("/", **framed).status == 403


def test_a_session_ends_with_its_key_and_when_one_logs_out(night: Served) -> None:
    async def change(again: bool) -> str:
        async with make_watch(store_for(night.store), sweeping=False) as watch:
            if again:
                await Keyring(watch).revoke("passing")
            return (await Keyring(watch).create("passing", ["viewer"]))[1]

    night.keys["passing"] = asyncio.run(change(again=False))
    visit, other = logged_in(night, "passing"), logged_in(night, "passing")
    kept = dict(visit.cookies)
    assert visit.post("/logout").status == 303
    visit.cookies = kept
    assert visit.get("/").status == 303
    assert other.get("/").status == 200
    night.ok("POST", "/keys/passing/revoke")
    assert other.get("/").headers["location"].startswith("/login?over=1")
    night.keys["passing"] = str(
        night.ok("POST", "/keys", {"name": "passing", "rights": ["viewer"]}, key="admin")["secret"]
    )
    assert other.get("/").status == 303, "a key that was made anew does not bring old sessions back"
    assert logged_in(night, "passing").get("/").status == 200


def test_a_screen_that_is_open_ends_with_its_session(night: Served) -> None:
    night.ok("POST", "/keys", {"name": "leaving", "rights": ["viewer"]})
    visit = Visit(night)
    link = link_for(night, "leaving")
    visit.post("/enter", {"link": link})
    connection = night.connect()
    connection.request("GET", LIVE, headers={"Cookie": "; ".join(f"{k}={v}" for k, v in visit.cookies.items())})
    stream = connection.getresponse()
    assert stream.headers["content-type"].startswith("text/event-stream")
    night.ok("POST", "/keys/leaving/revoke")
    assert stream.read().startswith(b"data: "), "the stream has ended by itself"
    connection.close()


@pytest.mark.parametrize("name", ["ada", "submitter", "short", "gone"])
def test_who_may_not_look_cannot_log_in(night: Served, name: str) -> None:
    visit = Visit(night)
    answer = visit.post("/login", {"key": night.keys[name]})
    assert answer.status == (403 if name in ("ada", "submitter") else 401)
    assert visit.cookies == {}


def test_a_viewer_sees_no_buttons_and_decides_nothing(night: Served) -> None:
    visit, question = logged_in(night, "viewer"), question_of(night)
    shown = visit.get("/").body
    assert b"Two tables" in shown
    assert b'name="option"' not in shown
    for deed in DEEDS:
        path = filled(deed.path).replace("no-such-question", question)
        assert visit.post(path, {"option": "skip"}).status in (403, 404)
    assert night.ok("GET", f"/questions/{question}", key="viewer")["closed_at"] is None


def test_a_get_changes_nothing(night: Served) -> None:
    """Whatever is looked at, with every right there is: the journal has nothing new, and deeds are not done by GET."""
    visit = logged_in(night, "admin")
    before = end_of_journal(night)
    for deed in DEEDS:
        assert visit.get(deed.path.replace("{question}", question_of(night)).replace("{task}", "t_x")).status in (
            404,
            405,
        )
    for screen in SCREENS:
        visit.get(filled(screen.path))
    visit.get("/logout")
    visit.get("/enter?link=awl_admin_x")
    visit.get(f"/login?key={night.keys['admin']}")
    assert end_of_journal(night) == before
    assert visit.get("/").status == 200


def test_every_answer_has_its_headers(night: Served) -> None:
    visit = logged_in(night)
    for path in ("/", "/login", "/enter?link=x", "/static/page.css", "/static/no-such", "/live-not", "/nowhere"):
        answer = visit.get(path)
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] in ("same-origin", "no-referrer")
    assert "default-src 'self'" in visit.get("/").headers["content-security-policy"]
    assert visit.get("/").headers["cache-control"] == "no-store"
    assert visit.get("/static/../app.py").status in (401, 404)
    assert visit.get("/static/..%2fapp.py").status == 404


def test_what_agents_say_is_escaped_wherever_it_stands(night: Served) -> None:
    visit = logged_in(night)
    shown = visit.get("/").body.decode()
    assert HOSTILE not in shown
    assert HOSTILE.replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#39;") in shown
    assert "<script>alert" not in shown
    assert " style=" not in shown
    assert " onerror=" not in shown.replace("src=x onerror=alert(1)&gt;", "")


@pytest.mark.parametrize(
    "back", ["//evil.example/", "https://evil.example/", "/\\evil.example", "\\\\evil", "javascript:x", "/a\nb"]
)
def test_nobody_is_sent_elsewhere(night: Served, back: str) -> None:
    answer = Visit(night).post("/login", {"key": night.keys["viewer"], "back": back})
    assert answer.headers["location"] == "/"
    assert (
        Visit(night).post("/login", {"key": night.keys["viewer"], "back": "/?agents=0"}).headers["location"]
        == "/?agents=0"
    )


def test_sessions_are_no_words_for_anybody_from_elsewhere(night: Served) -> None:
    logged_in(night, "admin")
    for key in ("admin", "operator", "ada"):
        kept = night.call("POST", "/views/view_kept", {"prefix": ""}, key=key).body.decode()
        assert "session." not in kept
        assert night.call("POST", "/views/recall", {"key": "session.admin"}, key=key).status == 403
        swap = {"key": "session.admin", "before": None, "after": "{}"}
        assert night.call("POST", "/views/swap", swap, key=key).status == 403


def test_a_form_that_is_none_is_one_clear_error(night: Served) -> None:
    visit = logged_in(night)
    many = "&".join(f"a{number}=1" for number in range(500)).encode()
    for body in (b"\xff\xfe", many):
        answer = visit._call("POST", "/questions/q_x.1/answer", body, {"Origin": night.url})
        assert answer.status == 422
        assert b"not a form of a page" in answer.body
    assert visit.post("/questions/q_nothing.1/answer", {"option": "x"}).status == 404
    told = visit.post(f"/questions/{question_of(night)}/answer", {"option": "reply"}, HX_Request="true")
    assert (told.status, b"needs a text" in told.body) == (422, True)


def test_an_agents_text_does_not_become_the_token_of_a_form(night: Served) -> None:
    """Drawings that many share have a mark for each reader's token: no text that an agent can write is that mark."""
    visit = logged_in(night)
    names = ["csrf-of-the-session", "csrf-" + "0" * 32]
    night.ok("POST", "/tasks", {"tasks": [{"name": name, "role": "none"} for name in names]})
    shown = visit.get("/tasks").body.decode()
    assert visit.csrf
    assert all(name in shown for name in names)
