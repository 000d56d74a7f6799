"""What the server keeps out: the rules of docs/threat-model.md, each tried on a real server over a real socket."""

import asyncio
import contextlib
import http.client
import os
import random
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from allswell.domain.access.key import secret_of
from allswell.errors import Refused
from allswell.interfaces.http.listener import ListenAddress, check_address, listening
from allswell.interfaces.http.request_context import BODY_MOST
from allswell.interfaces.http.security import RequestLimits
from allswell.interfaces.http.server import ROUTES
from tests.interfaces.http.served import Served, make_keys, started
from tests.patience import SECONDS
from tests.security.unprivileged import as_nobody

WRONG = f"awk_admin_{secret_of(bytes(32))}"
RANDOM = int(os.environ.get("ALLSWELL_RANDOM_REQUESTS", "1200"))
AGENTS = {"claim_tasks", "check_in", "finish", "fail", "release", "ask", "request", "list_inbox", "show_request"}
OWN = {"list_tasks", "show_task", "explain", "list_questions", "show_question", "say_commands", "look_at"}
OWN |= {"list_services"}  # a breaker is shared by whoever calls its service
"""What an agent's key may call: there it sees its own alone."""


@pytest.mark.parametrize(
    "shown, code",
    [
        (None, "no_key"),
        ("", "no_key"),
        ("nonsense", "bad_key"),
        ("awk_", "bad_key"),
        (WRONG, "bad_key"),
        (WRONG.replace("admin", "nobody"), "bad_key"),
        ("short", "key_expired"),
        ("gone", "key_revoked"),
    ],
)
def test_without_a_key_that_holds_nothing_is_answered(served: Served, shown: str | None, code: str) -> None:
    """No key, a wrong one, one that ran out, one that was revoked: 401, on every route, and nothing else is told."""
    for route in ROUTES if shown in (None, WRONG) else ROUTES[:3]:
        answer = served.call(route.method, route.path, key=shown)
        assert (answer.status, answer.json["code"]) == (401, code)
        assert "bearer" in answer.headers["www-authenticate"].lower()
    assert served.call("GET", "/nowhere", key=shown).status == 401
    assert served.call("GET", "/openapi.json", key=shown).status == 401


def test_a_key_is_taken_from_the_header_alone(served: Served) -> None:
    """Addresses are written into logs; and another scheme is not guessed at."""
    shown = served.keys["admin"]
    assert served.call("GET", f"/status?key={shown}&access_token={shown}", key=None).status == 401
    basic = {"Authorization": f"Basic {served.keys['admin']}"}
    assert served.call("GET", "/status", key=None, headers=basic).json["code"] == "bad_key"


def test_whoever_has_no_right_is_refused(served: Served) -> None:
    """A viewer changes nothing, a submitter lists nothing, an agent decides nothing, an operator makes no keys."""
    (task,) = served.ok("POST", "/tasks", {"tasks": [{"name": "guarded", "role": "none"}]}, key="submitter")["task_ids"]
    for path, body in {
        "/tasks": {"tasks": [{"name": "x"}]},
        f"/tasks/{task}/cancel": {},
        "/runs": {"name": "x"},
        "/claims": {"agent_id": "ada"},
        f"/tasks/{task}/leases/1/done": {"agent_id": "ada"},
        "/deliveries/drop": {},
        "/keys": {"name": "mine", "rights": ["admin"]},
    }.items():
        assert served.call("POST", path, body, key="viewer").status == 403, path
    for path in ("/tasks", "/questions", "/agents", "/events", "/keys", "/status", "/receipts"):
        assert served.call("GET", path, key="submitter").status == 403, path
    swap = {"key": "key.admin", "before": None, "after": "{}"}
    for key in ("operator", "viewer", "submitter", "ada"):
        assert served.call("POST", "/keys", {"name": "mine", "rights": ["admin"]}, key=key).status == 403
        assert served.call("POST", "/keys/admin/revoke", key=key).status == 403
        for view, given in (("swap", swap), ("recall", {"key": "key.admin"})):
            assert served.call("POST", f"/views/{view}", given, key=key).status == 403
    assert served.call("POST", "/views/swap", swap, key="admin").status == 403
    assert "key." not in served.call("POST", "/views/view_kept", {"prefix": ""}, key="admin").body.decode()
    assert served.ok("GET", f"/tasks/{task}", key="viewer")["task"]["state"] == "ready"


def test_an_agents_key_reaches_its_own_alone(served: Served) -> None:
    """It can neither answer nor list others, claims for its roles and names alone, and speaks for no other's lease."""
    given = [{"name": "hers", "role": "build"}, {"name": "secret", "role": "deploy", "payload": "for others"}]
    hers, others = served.ok("POST", "/tasks", {"tasks": given}, key="submitter")["task_ids"]
    (lease,) = served.ok("POST", "/claims", {"task_id": hers}, key="ada")["claims"]
    word = f"/tasks/{hers}/leases/{lease['token']}"
    asked = served.ok("POST", f"{word}/ask", {"text": "May I?", "hold": True}, key="ada")["question_id"]
    for key in ("ada", "bob"):
        assert served.call("POST", f"/questions/{asked}/answer", {"option": "skip"}, key=key).status in (403, 404)
        listed = served.ok("GET", "/tasks?all=true&limit=1000", key=key)["tasks"]
        assert (hers in {one["task_id"] for one in listed}) is (key == "ada")
        assert not {one["role"] for one in listed} & {"deploy", "none"}
        assert served.call("GET", f"/tasks/{others}", key=key).status == 404
        assert b"for others" not in served.call("POST", "/views/view_payload", {"task": others}, key=key).body
        assert served.call("POST", "/claims", {"roles": ["deploy"]}, key=key).status == 403
        assert served.call("POST", "/claims", {"task_id": others}, key=key).json["claims"] == []
        for route in ROUTES:
            if route.name not in AGENTS | OWN and route.method == "GET":
                assert served.call("GET", route.path, key=key).status == 403, route.path
    assert served.call("POST", f"{word}/done", {"agent_id": "ada"}, key="bob").status == 403
    assert served.call("POST", f"{word}/done", {}, key="bob").status == 404
    assert served.call("POST", f"{word}/done", {"agent_id": "bob"}, key="bob").status == 409
    assert served.call("POST", "/claims", {"agent_id": "bob"}, key="ada").status == 403
    about = {"id": "all", "budget": "role:build", "spent": 10**12, "limit": 1, "until": None}
    command = {"command": "ReachBudget", "about": about}
    (answer,) = served.ok("POST", "/commands", {"commands": [command]}, key="ada")["answers"]
    assert answer["error"]["code"] == "not_allowed"
    command = {"command": "Complete", "about": {"id": "x", "task": hers, "token": lease["token"], "agent": "ada"}}
    (answer,) = served.ok("POST", "/commands", {"commands": [command]}, key="bob")["answers"]
    assert answer["error"]["code"] == "not_allowed"
    assert served.ok("GET", f"/tasks/{hers}", key="ada")["task"]["state"] == "held"


def test_once_a_lease_has_ended_its_token_acts_on_nothing(served: Served) -> None:
    (task,) = served.ok("POST", "/tasks", {"tasks": [{"name": "over", "role": "build"}]}, key="submitter")["task_ids"]
    (lease,) = served.ok("POST", "/claims", {"task_id": task}, key="ada")["claims"]
    word = f"/tasks/{task}/leases/{lease['token']}"
    served.ok("POST", f"{word}/release", {"reason": "not mine"}, key="ada")
    before = served.ok("GET", f"/tasks/{task}", key="viewer")["task"]
    for verb, body in {
        "checkin": {"note": "still here"},
        "done": {"result": 1},
        "fail": {"message": "no"},
        "release": {},
        "ask": {"text": "May I?"},
        "request": {"role": "critic", "name": "x"},
    }.items():
        answer = served.call("POST", f"{word}/{verb}", body, key="ada")
        assert (answer.status, answer.json["kind"]) == (409, "lease_lost"), verb
        assert answer.json["reason"]
    about = {"id": "dear", "task": task, "token": lease["token"], "agent": "ada", "expense": {"cost": 10**12}}
    command = {"command": "Spend", "about": {**about, "while_held": False}}
    (answer,) = served.ok("POST", "/commands", {"commands": [command]}, key="ada")["answers"]
    assert answer["error"]["kind"] == "lease_lost", "it would take the task, or its whole role, out of the pool"
    assert served.ok("GET", f"/tasks/{task}", key="viewer")["task"] == before
    served.ok("POST", f"/tasks/{task}/cancel")  # nobody else's claim shall get it


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]:80", "localhost:80:80"])
def test_a_foreign_host_is_refused(served: Served, host: str) -> None:
    """A page that calls this port under a name of its own (DNS rebinding) gets nothing, not even with a key."""
    answer = served.call("GET", "/status", headers={"Host": host})
    assert answer.status in (400, 421)
    assert b"counts" not in answer.body


@pytest.mark.parametrize("host", ["localhost", "allswell.localhost:80", "127.0.0.1", "[::1]:80"])
def test_names_of_this_machine_are_answered(served: Served, host: str) -> None:
    """The second is the page's alone: every program that serves a page at `localhost` is shown its cookies."""
    assert served.call("GET", "/status", headers={"Host": host}).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost", "https://{}"])
def test_a_foreign_origin_is_refused_and_no_page_may_read(served: Served, origin: str) -> None:
    own = "{}:{}".format(*served.place)
    refused = served.call("POST", "/tasks", {"tasks": [{"name": "x"}]}, headers={"Origin": origin.format(own)})
    assert (refused.status, refused.json["code"]) == (403, "foreign_origin")
    assert served.call("OPTIONS", "/tasks", headers={"Origin": origin.format(own)}).status in (403, 405)
    assert served.call("GET", "/status", headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    allowed = served.call("GET", "/status", headers={"Origin": f"http://{own}"})
    assert allowed.status == 200
    assert not [name for name in allowed.headers if name.startswith("access-control-")]
    assert allowed.headers["x-content-type-options"] == "nosniff"
    assert allowed.headers["cache-control"] == "no-store"


def test_a_get_changes_nothing(served: Served) -> None:
    """Every route that changes something is a POST, and does not answer to anything else."""
    names = {route.name for route in ROUTES if route.method == "GET"}
    assert all(name.startswith(("list_", "show_", "explain")) for name in names), names
    before = served.ok("GET", "/events?limit=1000")["events"]
    for route in ROUTES:
        if route.method == "POST" and not any(one.path == route.path and one.method == "GET" for one in ROUTES):
            assert served.call("GET", route.path).status == 405, route.path
    for method in ("PUT", "PATCH", "DELETE", "TRACE"):
        assert served.call(method, "/tasks").status == 405
    assert served.ok("GET", "/events?limit=1000")["events"] == before


def test_what_is_too_big_is_refused(served: Served) -> None:
    """By what it says of itself, by what really comes, and in its head; a payload is bounded as it is everywhere."""
    said = served.call("POST", "/tasks", headers={"Content-Length": str(BODY_MOST + 1)}, raw=b"")
    assert said.status == 413
    with contextlib.closing(served.connect()) as connection:
        connection.putrequest("POST", "/api/v1/tasks")
        connection.putheader("Authorization", f"Bearer {served.keys['admin']}")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        part = b"%x\r\n" % (1 << 20) + b"x" * (1 << 20) + b"\r\n"
        with contextlib.suppress(OSError):
            for _ in range(BODY_MOST // (1 << 20) + 2):
                connection.send(part)
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert connection.getresponse().status == 413
    with contextlib.suppress(OSError, http.client.HTTPException):
        assert served.call("GET", "/status", headers={"X": "y" * (1 << 20)}).status in (400, 431)
    payload = {"tasks": [{"name": "x", "payload": "y" * (1 << 20)}]}
    assert served.call("POST", "/tasks", payload).status == 422
    deep = served.call("POST", "/tasks", raw=b"[" * 100_000)
    assert deep.status in (400, 422)


def test_random_requests_are_refused_and_cost_nothing(served: Served) -> None:
    """Bytes by chance, and requests that chance has bent: the server lives, and its memory is bounded."""
    chance = random.Random(7)
    served.ok("GET", "/status")
    before, said = served.memory, served.unread
    head = b"POST /api/v1/tasks?limit=3 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
    valid = head + b"Content-Length: %d\r\n\r\n%s"
    body = b'{"tasks":[{"name":"x","role":"none","needs":[],"payload":{"a":[1,2,{"b":null}]}}]}'
    whole = valid % (served.keys["viewer"].encode(), len(body), body)
    for number in range(RANDOM // 2):
        sent = bytearray(whole if number % 3 else chance.randbytes(chance.randint(1, 400)))
        for _ in range(chance.randint(1, 12) if number % 3 else 0):
            sent[chance.randrange(len(sent))] = chance.randrange(256)
        raw = socket.create_connection(served.place, timeout=SECONDS)
        with contextlib.closing(raw), contextlib.suppress(OSError):  # it may be closed before all is sent
            raw.sendall(sent)
            raw.shutdown(socket.SHUT_WR)
            answer = raw.recv(65_536)
            assert not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201", b"HTTP/1.1 500")), (sent, answer)
    paths = [route.path for route in ROUTES]
    odd = {
        "task": "t_x",
        "id": "%00",
        "question": "q_@",
        "run": "..",
        "view": "swap",
        "name": "%2e",
        "receipt": "rc_%2f",
        "request": "m_%2e",
        "agent": "%7f",
    }
    with contextlib.closing(served.connect()) as connection:
        for _ in range(RANDOM // 2):
            path = chance.choice(paths).format(**odd, token=chance.choice(["1", "x", "9" * 30]))
            given = bytes(chance.choices(b'{}[]":,0123456789.eE-truefalsn \x00\xff', k=chance.randint(0, 60)))
            answered = served.say(connection, chance.choice(["GET", "POST"]), path, raw=given, key="ada")
            assert answered.status < 500, (path, given, answered.body)
    assert served.memory - before < 64 << 20
    assert served.unread == said  # a line for each would fill a pipe that nobody reads, and hold up the server for ever
    assert served.call("GET", "/readyz", key=None).json["ready"]


def test_one_key_cannot_take_everything() -> None:
    now = [0.0]
    limits = RequestLimits(lambda: now[0], rate=10, spare=5, at_a_time=3)
    assert [limits.enter("ada") for _ in range(3)] == [None] * 3
    assert limits.enter("ada") == 1.0
    assert limits.enter("bob") is None
    for _ in range(3):
        limits.leave("ada")
    assert [limits.enter("ada") for _ in range(2)] == [None] * 2
    for _ in range(2):
        limits.leave("ada")
    assert limits.enter("ada") == pytest.approx(0.1)
    now[0] = 0.1
    assert limits.enter("ada") is None


@pytest.mark.realtime
def test_connections_that_dawdle_are_ended(served: Served) -> None:
    """Slowloris: heads and bodies that never end hold up nobody, and are cut off."""
    slow = [socket.create_connection(served.place, timeout=SECONDS) for _ in range(100)]
    try:
        for number, one in enumerate(slow):
            one.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n" if number % 2 else b"G")
        began = time.monotonic()
        assert served.ok("GET", "/status")
        assert time.monotonic() - began < 5
        ended = 0
        while ended < len(slow) and time.monotonic() - began < 30:
            for one in slow[ended:]:
                with contextlib.suppress(OSError):
                    one.sendall(b"X")
            slow[ended].settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                with contextlib.suppress(ConnectionError):
                    assert slow[ended].recv(100) == b""
                ended += 1
        assert ended == len(slow)
        assert time.monotonic() - began > 3
    finally:
        for one in slow:
            one.close()


@pytest.mark.parametrize("ours, theirs", [("127.0.0.1", "::1"), ("localhost", "::1"), ("::1", "127.0.0.1")])
def test_no_program_of_another_users_answers_at_localhost_beside_a_server(ours: str, theirs: str) -> None:
    """Browsers look for `localhost` at `[::1]` first: there it would be shown keys, cookies and links."""

    def listens(port: int) -> socket.socket:
        made = socket.socket(socket.AF_INET6 if ":" in theirs else socket.AF_INET)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((theirs, port))
        made.listen()
        return made

    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with listening(ListenAddress(ours, 0)) as (_, where):
        assert as_nobody(lambda: listens(where.port)) == "OSError"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((theirs, where.port), SECONDS)
    with listens(where.port), pytest.raises(Refused, match="another program has the port") as refused:
        listening(ListenAddress(ours, where.port)).__enter__()
    assert refused.value.code == "cannot_listen"
    with listening(ListenAddress(ours, where.port)) as (_, again):
        assert again.port == where.port


def test_it_listens_for_its_user_alone(tmp_path: Path) -> None:
    """A unix socket is 0600; an open address without TLS is refused, as is half of TLS; stopping lets waiters go."""
    folder = tmp_path
    store = f"sqlite:///{folder}/.allswell/allswell.db"
    keys = asyncio.run(make_keys(store))
    path = folder / "watch.sock"
    half = ListenAddress(certificate="watch.pem")
    for address in (ListenAddress("0.0.0.0"), ListenAddress("::"), ListenAddress("watch.example.org"), half):  # noqa: S104 - refused
        with pytest.raises(Refused, match=r"in the open|belong together"):
            check_address(address)
    check_address(ListenAddress("0.0.0.0", behind_proxy=True))  # noqa: S104 - a proxy speaks TLS in front of it
    command = [sys.executable, "-m", "allswell", "serve", "--listen", "0.0.0.0:0", "--store", store]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert refused.returncode == 2
    assert "--behind-proxy" in refused.stderr
    with started(folder, store, "--json", "--unix", str(path)) as (process, url):
        assert url == f"http+unix://{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
            connection.connect(str(path))
            asked = b'{"roles":["test"],"wait_ms":40000}'
            head = f"POST /api/v1/claims HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {keys['ada']}\r\n"
            connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n%s" % (len(asked), asked))
            threading.Timer(1.0, process.terminate).start()
            answer = connection.makefile("rb").readline()
            assert b"503" in answer
        assert process.wait(SECONDS) == 0
    assert not path.exists()
