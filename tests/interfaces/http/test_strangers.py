"""Strangers at the port: what callers without a key, and with one that was revoked, cannot hold, read or use up."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import h11
import pytest
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from allswell.errors import Refused
from allswell.interfaces.http import listener
from allswell.interfaces.http.listener import (
    HEAD_MOST,
    HEAD_PIECES_MOST,
    PART_LEAST,
    PARTS_FREE,
    STRANGERS_PAUSE,
    STRANGERS_RATE,
    STRANGERS_SPARE,
    ConnectionLimit,
    ListenAddress,
    PromptConnection,
    StrangersPace,
    StrictConnection,
    connections_for,
    listening,
    serve,
)
from allswell.interfaces.http.request_context import BODY_SECONDS
from allswell.interfaces.http.security import KEY, LARGE, LARGE_AT_A_TIME, RequestLimits
from allswell.interfaces.http.server import OncePerMinute
from allswell.interfaces.http.webhooks import Hooks
from tests.interfaces.http.served import Served, serving
from tests.interfaces.http.test_hooks import NEW, OTHER, deploy, post
from tests.interfaces.notifications.test_webhook import certificate
from tests.patience import SECONDS

SLOW_LOGIN = (
    b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: %d\r\n\r\n"
)


@pytest.fixture(scope="module")
def few_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that may open 1,024 files."""
    with serving(tmp_path_factory.mktemp("few"), files=1_024) as server:
        yield server


def test_idle_connections_do_not_keep_others_out(few_files: Served) -> None:
    """1,100 connections that say nothing, with 1,024 files: others are answered, and stderr stays short."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, files[1]), files[1]))
    quiet_before = few_files.unread
    idle: list[socket.socket] = []
    try:
        for number in range(1_100):
            idle.append(socket.create_connection(few_files.place, timeout=SECONDS))
            if number % 100 == 99:
                assert few_files.call("GET", "/healthz", key=None).status == 200, number
        assert few_files.ok("GET", "/status")
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    assert few_files.unread - quiet_before < 2_000


def test_one_keys_waiting_calls_do_not_keep_others_out(few_files: Served) -> None:
    """700 claims that wait, with 1,024 files: a key has so many calls at a time, and others are answered."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, files[1]), files[1]))
    body = b'{"roles": ["build"], "wait_ms": 40000}'
    call = (
        b"POST /api/v1/claims HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
    )
    waiting: list[socket.socket] = []
    try:
        for number in range(700):
            waiting.append(socket.create_connection(few_files.place, timeout=SECONDS))
            waiting[-1].sendall(call % (few_files.keys["ada"].encode(), len(body), body))
            if number % 100 == 99:
                assert few_files.call("GET", "/healthz", key=None).status == 200, number
        assert few_files.ok("GET", "/status", key="viewer")
        refused = few_files.call("POST", "/claims", {"roles": ["build"]}, key="ada")
        assert (refused.status, refused.json["code"]) == (429, "too_many_calls")
    finally:
        for connection in waiting:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


def test_callers_who_never_agree_on_keys_do_not_keep_others_out(tmp_path: Path) -> None:
    """With TLS a connection counts, and gives way, before it has come to a request."""
    certificate(tmp_path, "localhost")
    options = ("--listen", "127.0.0.1:0", "--tls-cert", "own.pem", "--tls-key", "key.pem")
    trusting = ssl.create_default_context(cafile=tmp_path / "own.pem")
    with serving(tmp_path, *options, files=200) as server:
        idle = [socket.create_connection(server.place, timeout=SECONDS) for _ in range(250)]
        try:
            idle[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")  # it is no TLS
            began = time.monotonic()
            for _ in range(2):
                connection = http.client.HTTPSConnection("localhost", server.place[1], timeout=60, context=trusting)
                with contextlib.closing(connection):
                    assert server.say(connection, "GET", "/healthz", key=None).status == 200
                    assert server.say(connection, "GET", "/status").status == 200
            assert time.monotonic() - began < 20
        finally:
            for quiet in idle:
                quiet.close()
        assert server.unread < 2_000


def test_connections_are_fewer_than_files() -> None:
    assert connections_for(1_024) < 700
    assert connections_for(1_000_000) == connections_for(100_000) == 8_000
    assert 0 < connections_for(200) < 200


class Held(PromptConnection):
    """A connection that is busy or not, and can be ended."""

    def __init__(self, *, busy: bool = False, waits_for_caller: bool = False) -> None:
        self._busy, self._waits_for_caller, self.ended = busy, waits_for_caller, False

    @property
    def is_busy(self) -> bool:
        return self._busy

    @property
    def waits_for_caller(self) -> bool:
        return self._waits_for_caller

    def end(self) -> None:
        self.ended = True


def test_a_new_connection_takes_the_place_of_the_oldest_idle_one() -> None:
    connections = ConnectionLimit(3, 2)
    busy, oldest, newest = Held(busy=True), Held(), Held()
    for connection, address in ((busy, "10.0.0.1"), (oldest, "10.0.0.2"), (newest, "10.0.0.3")):
        assert connections.admit(connection, address)
    assert connections.admit(Held(busy=True), "10.0.0.4")
    assert (busy.ended, oldest.ended, newest.ended) == (False, True, False)


def test_where_none_is_idle_the_one_goes_whose_caller_lets_us_wait() -> None:
    connections = ConnectionLimit(3, 3)
    busy, waits, idle = Held(busy=True), Held(busy=True, waits_for_caller=True), Held()
    for connection in (busy, waits, idle):
        assert connections.admit(connection, "")
    assert connections.admit(Held(busy=True), "")
    assert (busy.ended, waits.ended, idle.ended) == (False, False, True)
    assert connections.admit(Held(busy=True), "")
    assert (busy.ended, waits.ended) == (False, True)
    assert not connections.admit(Held(), "")


NEVER_SENT = (SLOW_LOGIN % 3_000).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
NEVER_READ = b"GET /static/htmx.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300


@pytest.mark.parametrize("sent", [NEVER_SENT, NEVER_READ], ids=["never send a body", "never read"])
def test_callers_who_never_send_or_never_read_do_not_keep_others_out(tmp_path: Path, sent: bytes) -> None:
    """Without a key: bodies of a log in that do not come, and answers that are not taken."""
    with serving(tmp_path, files=200) as server:
        began = time.monotonic()
        slow = [socket.socket() for _ in range(connections_for(200))]
        try:
            for connection in slow:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_024)
                connection.connect(server.place)
                connection.sendall(sent)
                assert connection.recv(1), "its request is being carried out"
            while not _is_answered(server):
                assert time.monotonic() - began < BODY_SECONDS - 5
        finally:
            for connection in slow:
                connection.close()
    assert time.monotonic() - began < BODY_SECONDS


def _is_answered(server: Served) -> bool:
    try:
        return server.call("GET", "/healthz", key=None).status == 200
    except OSError:
        return False


def test_one_address_gets_its_share_and_not_more() -> None:
    connections = ConnectionLimit(10, 2)
    first, second = Held(busy=True), Held(busy=True)
    assert connections.admit(first, "10.0.0.1")
    assert connections.admit(second, "10.0.0.1")
    assert not connections.admit(Held(), "10.0.0.1"), "both of its connections are in use"
    assert connections.admit(Held(), "10.0.0.2")
    assert all(connections.admit(Held(busy=True), "") for _ in range(7)), "this machine's own are bounded in all alone"
    connections.leave(first)
    assert connections.admit(Held(), "10.0.0.1")


def test_bodies_before_a_key_hold_next_to_nothing(served: Served) -> None:
    """Unfinished bodies of 8 MiB at the log in: refused by what they say of themselves, and by what comes."""
    served.ok("GET", "/status")
    before = served.memory
    slow = [socket.create_connection(served.place, timeout=SECONDS) for _ in range(20)]
    try:
        for connection in slow:
            connection.sendall(SLOW_LOGIN % (8 << 20))
            with contextlib.suppress(OSError):
                connection.sendall(b"key=" + b"x" * (2 << 20))
        for connection in slow:
            with contextlib.suppress(ConnectionError):
                assert connection.recv(100).startswith(b"HTTP/1.1 413")
    finally:
        for connection in slow:
            connection.close()
    assert served.memory - before < 8 << 20


@pytest.mark.parametrize(
    "head",
    [
        b"POST /mcp HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.0\r\nHost: localhost\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /api/v1/status HTTP/1.1\nHost: localhost\n%s\n\n",
        b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n%s\nX: y\r\n\r\n",
        b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n%s\r\n\n",
        b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n%s\r\nX: y\r\n Content-Length: 4\r\n\r\n",
    ],
    ids=[
        "two lengths",
        "chunks in HTTP/1.0",
        "bare line feeds",
        "one bare line feed",
        "a bare line feed at the end",
        "a folded line",
    ],
)
def test_requests_that_two_servers_would_read_differently_are_refused(served: Served, head: bytes) -> None:
    """A proxy in front of us must not see one request where we see two."""
    whole = head % f"Authorization: Bearer {served.keys['admin']}".encode()
    with contextlib.closing(socket.create_connection(served.place, timeout=SECONDS)) as connection:
        connection.sendall(whole)
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("end", [b"0\r\n\n", b"0\r\nX: y\n\n", b"0\r\nX: y\r\n\r\n"])
def test_a_body_in_chunks_ends_in_one_way_only(served: Served, end: bytes) -> None:
    """Trailers are taken from no caller, nor an end of bare line feeds: what follows would be another's request."""
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    body = b"Transfer-Encoding: chunked\r\n\r\n3\r\na=b\r\n"
    after = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with contextlib.closing(socket.create_connection(served.place, timeout=SECONDS)) as connection:
        connection.sendall(head + body + end + after)
        answer = connection.makefile("rb").read()
    assert (answer.startswith(b"HTTP/1.1 400"), b"alive" in answer) == (True, False), answer
    with contextlib.closing(socket.create_connection(served.place, timeout=SECONDS)) as connection:
        for part in (head + body, b"0", b"\r\n", b"\r", b"\n", after):
            connection.sendall(part)
        answer = connection.makefile("rb").read()
    assert (answer.startswith(b"HTTP/1.1 401"), b"alive" in answer) == (True, True), "the usual end is taken"


def test_the_second_request_on_a_connection_is_read_as_strictly(served: Served) -> None:
    key = f"Authorization: Bearer {served.keys['admin']}".encode()
    first = b"GET /api/v1/version HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % key
    with contextlib.closing(socket.create_connection(served.place, timeout=SECONDS)) as connection:
        connection.sendall(first + b"GET /healthz HTTP/1.1\nHost: localhost\n\n")
        answer = connection.makefile("rb").read()
    assert (answer.count(b"HTTP/1.1"), answer.count(b"HTTP/1.1 400 Bad Request")) == (2, 1), answer


@pytest.mark.parametrize(
    "size, many, read", [(1, 40_000, False), (64, 4_000, False), (PART_LEAST, 1_000, True), (1, PARTS_FREE, True)]
)
def test_nothing_stands_still_for_a_body_in_very_small_chunks(size: int, many: int, read: bool) -> None:
    """What comes at once is read in one go: a quarter of a megabyte took half a second in chunks of one byte.

    In chunks of 64 bytes it still took a sixth of a second.
    """
    connection = StrictConnection(h11.SERVER, HEAD_MOST)
    connection.receive_data(b"POST /login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    connection.receive_data(b"%x\r\n%s\r\n" % (size, b"x" * size) * many + b"0\r\n\r\n")
    events = 0
    with pytest.raises(h11.RemoteProtocolError, match="few bytes") if not read else contextlib.nullcontext():
        while not isinstance(connection.next_event(), h11.EndOfMessage):
            events += 1
    assert events == (many + 1 if read else PARTS_FREE + 1)


@pytest.mark.parametrize(
    "start, lines",
    [
        (b"GET /healthz HTTP/1.1", b"a:\r\n" * 7_000),
        (b"GET /healthz HTTP/1.1", b"a: %s\r\n" % (b"x" * HEAD_MOST)),
        (b"GET /login?%s HTTP/1.1" % (b"a&" * 3_000), b""),
        (b"GET /login?%s HTTP/1.1" % (b"a" * 10_000), b""),
        (b"GET / HTTP/1.1", b"Cookie: %s\r\n" % (b"a=b;" * 7_000)),
    ],
    ids=["lines", "bytes at once", "fields", "address", "cookies"],
)
def test_a_head_that_takes_long_to_read_is_refused(served: Served, start: bytes, lines: bytes) -> None:
    """7,000 lines took 20 ms each time, before any key was seen: twenty connections took the server from all others."""
    head = b"\r\nHost: localhost\r\nConnection: close\r\n"
    with contextlib.closing(socket.create_connection(served.place, timeout=SECONDS)) as connection:
        connection.sendall(start + head + lines + b"\r\n")
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 400")
    usual = b"a: b\r\n" * 90 + b"Cookie: %s\r\n" % (b"a=b;" * 190)
    with contextlib.closing(socket.create_connection(served.place, timeout=SECONDS)) as connection:
        connection.sendall(b"GET /login?%s HTTP/1.1" % (b"a&" * 190) + head + usual + b"\r\n")
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200")


def _read_in(*pieces: bytes) -> str:
    """What becomes of a head that comes in pieces."""
    connection = StrictConnection(h11.SERVER, HEAD_MOST)
    event: object = None
    try:
        for piece in pieces:
            connection.receive_data(piece)
            event = connection.next_event()
    except h11.RemoteProtocolError as error:
        return str(error)
    return type(event).__name__


@pytest.mark.parametrize("bad", [b"X: y\nZ: z\r\n", b"X: y\r\n z\r\n", b"X: y\r\n\n"])
def test_a_head_is_read_alike_however_it_is_cut(bad: bytes) -> None:
    """It is looked through once, and not from its beginning whenever a byte of it comes."""
    good = b"GET / HTTP/1.1\r\nHost: localhost\r\nA: b\r\n\r\n"
    odd = good.removesuffix(b"\r\n") + bad + b"\r\n"
    for at in range(1, len(good)):
        assert _read_in(good[:at], good[at:]) == "Request"
    for at in range(1, len(odd)):
        assert "carriage return" in _read_in(odd[:at], odd[at:])


def test_what_comes_byte_by_byte_is_not_waited_for() -> None:
    """Each piece is a turn of the loop: two hundred connections that sent so took it from all others for seconds."""
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n"
    assert "pieces" in _read_in(b"GET / HTTP/1.1\r\nX: ", *[b"y"] * HEAD_PIECES_MOST)
    assert _read_in(*(head[at : at + 1] for at in range(len(head)))) == "Request", "people type so"
    assert "pieces" in _read_in(head, *[b"y"] * (PARTS_FREE + 1))
    assert _read_in(head, *[b"y" * 15] * PARTS_FREE) == "Data"


def test_a_key_holds_no_more_than_a_few_large_bodies(served: Served) -> None:
    """Forty unfinished bodies of one key: eight are read, and calls with small ones go on, its own too."""
    served.ok("GET", "/status")
    before = served.memory
    head = f"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.keys['submitter']}\r\n"
    slow = [socket.create_connection(served.place, timeout=SECONDS) for _ in range(40)]
    try:
        for connection in slow:
            connection.sendall(f"{head}Content-Length: {8 << 20}\r\n\r\n".encode())
            connection.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                connection.sendall(b" " * ((8 << 20) - 1))
        served.ok("POST", "/tasks", {"tasks": [{"name": "small", "role": "none"}]}, key="submitter")
        served.ok(
            "POST", "/tasks", {"tasks": [{"name": "large", "role": "none", "payload": "x" * LARGE}]}, key="operator"
        )
        assert served.memory - before < 150 << 20
    finally:
        for connection in slow:
            connection.close()


def test_a_body_that_turns_out_to_be_small_keeps_no_place() -> None:
    """As a body in chunks does: a call that then waits for long does not have others of its key wait too."""

    async def small() -> Message:
        return {"type": "http.request", "body": b"{}"}

    async def call(limits: RequestLimits, done: asyncio.Event) -> None:
        async with limits.room_for("ada", Headers({"transfer-encoding": "chunked"}), small) as receive:
            await receive()
            done.set()
            await asyncio.Event().wait()

    async def many() -> None:
        limits = RequestLimits(time.monotonic)
        assert limits.enter("ada") is None
        began = [asyncio.Event() for _ in range(3 * LARGE_AT_A_TIME)]
        waiting = [asyncio.ensure_future(call(limits, done)) for done in began]
        await asyncio.wait_for(asyncio.gather(*(done.wait() for done in began)), SECONDS)
        for one in waiting:
            one.cancel()

    asyncio.run(many())


def test_a_revoked_key_reads_and_waits_no_longer(tmp_path: Path) -> None:
    """Streams and waiting calls that were open when their key was revoked end within seconds."""
    with serving(tmp_path) as served:
        ended: dict[str, float] = {}
        follower, claimer = served.connect(), served.connect()
        key = {"Authorization": f"Bearer {served.keys['viewer']}", "Accept": "text/event-stream"}
        follower.request("GET", "/api/v1/events", headers=key)
        stream = follower.getresponse()
        assert stream.readline() == b": here\n"

        def follow() -> None:
            stream.read()
            ended["events"] = time.monotonic()

        def claim() -> None:
            body = {"roles": ["build"], "wait_ms": 40_000}
            answer = served.say(claimer, "POST", "/claims", body, key="bob")
            ended["claim"] = time.monotonic()
            assert (answer.status, answer.json["code"]) == (401, "key_revoked")

        threads = [threading.Thread(target=work) for work in (follow, claim)]
        for thread in threads:
            thread.start()
        assert served.ok("GET", "/status")["counts"] is not None
        began = time.monotonic()
        for name in ("viewer", "bob"):
            served.ok("POST", f"/keys/{name}/revoke")
        for thread in threads:
            thread.join(SECONDS)
        assert set(ended) == {"events", "claim"}
        assert max(ended.values()) - began < 20
        served.ok("POST", "/tasks", {"tasks": [{"name": "for bob", "role": "build"}]})
        assert served.ok("GET", "/tasks")["tasks"][0]["state"] == "ready"
        follower.close()
        claimer.close()


def test_a_revoked_key_reads_no_further_what_an_attempt_prints(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        words = ("run", "--name", "long", "--store", served.store, "--", "sh", "-c", "echo one; exec sleep 600")
        command = [sys.executable, "-m", "allswell", *words]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as attempt:
            try:
                assert attempt.stdout is not None
                assert attempt.stdout.readline() == b"one\n"
                with contextlib.closing(served.connect()) as follower:
                    key = {"Authorization": f"Bearer {served.keys['viewer']}", "Accept": "text/event-stream"}
                    follower.request("GET", "/api/v1/tasks/long/log", headers=key)
                    stream = follower.getresponse()
                    assert stream.readline() == b": here\n"
                    served.ok("POST", "/keys/viewer/revoke")
                    assert stream.read().count(b"event: line") == 1  # it comes to its end
            finally:
                attempt.terminate()
                attempt.wait(SECONDS)


def test_callers_without_a_key_are_answered_at_a_rate_of_their_own() -> None:
    """With as many connections as they like: else they would have the loop that serves callers with keys."""
    now = 1_000.0
    pace = StrangersPace(lambda: now)
    free = int(STRANGERS_RATE * STRANGERS_SPARE)
    assert [pace.pause() for _ in range(free)] == [0.0] * free
    assert pace.pause() == pytest.approx(1 / STRANGERS_RATE)
    assert pace.pause() == pytest.approx(2 / STRANGERS_RATE), "each waits for its own turn"
    assert max(pace.pause() for _ in range(int(STRANGERS_RATE * STRANGERS_PAUSE * 2))) == pytest.approx(STRANGERS_PAUSE)
    now += STRANGERS_PAUSE + STRANGERS_SPARE
    assert [pace.pause() for _ in range(free - 1)] == [0.0] * (free - 1), "what went before is forgotten"


def test_a_connection_without_a_key_waits_for_its_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends the next ones before the answer is cut off; a caller with a key is answered at once."""
    monkeypatch.setattr(listener, "STRANGERS_RATE", 0.01)
    monkeypatch.setattr(listener, "STRANGERS_SPARE", 300.0)
    monkeypatch.setattr(listener, "STRANGERS_PAUSE", 0.01)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/known":
            scope[KEY] = "of a caller"
        await PlainTextResponse("alive")(scope, receive, send)

    async def answers(port: int, path: bytes, *, at_once: bool) -> int:
        """How many of ten requests are answered, on one connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        asked = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path
        count = 0
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            writer.write(asked * 10 if at_once else asked)
            while count < 10:
                await reader.readuntil(b"alive")
                count += 1
                writer.write(b"" if at_once else asked)
        writer.close()
        return count

    async def scene() -> tuple[int, ...]:
        stop = asyncio.Event()
        with listening(ListenAddress(port=0)) as (made, where):
            serving_ = asyncio.ensure_future(serve(app, made, where, stop.wait(), lambda: None))
            counts = [await answers(where.port, path, at_once=True) for path in (b"/known", b"/unknown")]
            counts.append(await answers(where.port, b"/unknown", at_once=False))
            stop.set()
            await serving_
        return tuple(counts)

    assert asyncio.run(asyncio.wait_for(scene(), SECONDS)) == (10, 4, 10)


def test_unsigned_posts_use_up_nothing_and_learn_no_name(tmp_path: Path) -> None:
    """A stranger at a hook cannot keep its sender out, and cannot tell a hook that is there from one that is not."""
    settings = (
        '[hooks.deploys]\nsecret_env = "HOOK_NEW"\ntask = "deploy {data.service}"\nrole = "none"\nmax_body = 2000\n'
    )
    (tmp_path / "allswell.toml").write_text(settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOOK_NEW", NEW)
        with serving(tmp_path) as served:
            with contextlib.closing(served.connect()) as connection:
                for _ in range(1_100):
                    answer = served.say(connection, "POST", "/hooks/deploys", {"x": 1}, key=None)
                    assert answer.json["code"] == "no_signature"
            assert post(served, "deploys", deploy(), id_="fine").status == 202
            head = b"POST /hooks/deploys HTTP/1.1\r\nHost: localhost\r\nwebhook-id: a\r\nwebhook-timestamp: 1\r\n"
            slow = [socket.create_connection(served.place, timeout=SECONDS) for _ in range(300)]
            for begun in slow:
                begun.sendall(head + b"webhook-signature: v1,x\r\nContent-Length: 1000\r\n\r\nx")
            assert post(served, "deploys", deploy(), id_="beside bodies that never come").status == 202
            for begun in slow:
                begun.close()
            for body, secret in (
                (deploy(), OTHER),
                (deploy("y" * 3_000), OTHER),
                ("{", OTHER),
                (deploy("z" * 5_000_000), OTHER),
            ):
                known, unknown = (post(served, name, body, secret=secret, id_="m") for name in ("deploys", "unknown"))
                same = [(answer.status, answer.json["code"], answer.json["detail"]) for answer in (known, unknown)]
                assert same[0] == same[1]
            for method in ("GET", "POST"):
                one, other = (served.call(method, f"/hooks/{name}", key=None) for name in ("deploys", "unknown"))
                assert (one.status, one.json) == (other.status, other.json)


def test_bodies_that_do_not_come_keep_no_sender_of_a_hook_out() -> None:
    """What has not come takes no room; of what has, and cannot be checked yet, the oldest makes room for more."""

    async def scene() -> None:
        hooks = Hooks({}, lambda: pytest.fail("nothing was signed"), RequestLimits(lambda: 0.0), lambda: 0)
        hooks._room, hooks._body_most = 100, 90
        signed = ("webhook-id", "webhook-timestamp", "webhook-signature")
        scope = {"type": "http", "method": "POST", "headers": [(name.encode(), b"1") for name in signed]}
        callers = []

        def begins() -> asyncio.Queue[Message]:
            comes: asyncio.Queue[Message] = asyncio.Queue()
            callers.append(asyncio.ensure_future(hooks._read(Request(scope, comes.get))))
            return comes

        async def sent(comes: asyncio.Queue[Message], size: int, *, more: bool = True) -> None:
            comes.put_nowait({"type": "http.request", "body": b"x" * size, "more_body": more})
            while not comes.empty():
                await asyncio.sleep(0)
            await asyncio.sleep(0)

        never = [begins() for _ in range(200)]
        sender = begins()
        await sent(sender, 20)
        for begun in (begins(), begins()):
            await sent(begun, 35)
        await sent(sender, 5, more=False)
        assert await callers[200] == b"x" * 25, "the sender was not kept out by any of them"
        await sent(begins(), 35)
        with pytest.raises(Refused, match="too long in coming"):
            await callers[201]
        await sent(never[0], 1, more=False)
        assert await callers[0] == b"x", "and one of which nothing had come was not in the way"
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        assert hooks._held == 0

    asyncio.run(scene())


def test_a_stranger_at_the_page_learns_no_name(few_files: Served) -> None:
    """Whether a name has a key, what it is for and how it stands is told to who shows its link or session alone."""

    def answers(name: str) -> tuple[tuple[int, bytes], ...]:
        cookie = {"Cookie": f"allswell-{few_files.place[1]}=aws_{name}_{'A' * 43}"}
        link = f"link=awl_{name}_{'A' * 22}"
        told = []
        for method, path, body, headers in (("POST", "/enter", link, {}), ("GET", "/live/tasks", None, cookie)):
            with contextlib.closing(few_files.connect()) as connection:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                told.append((answer.status, answer.read()))
        return tuple(told)

    names = ("viewer", "ada", "gone", "short", "nobody")
    assert {answers(name) for name in names} == {answers("nobody")}
    assert [status for status, _ in answers("nobody")] == [401, 401]


def test_a_kind_of_trouble_is_logged_once_a_minute_with_a_count() -> None:
    now = [0.0]
    seldom = OncePerMinute(lambda: now[0])
    records = [
        logging.makeLogRecord({"name": "asyncio", "levelno": 40, "msg": "out of %s", "args": (n,)}) for n in "abcd"
    ]
    passed = [seldom.filter(record) for record in records[:3]]
    assert passed == [True, False, False]
    now[0] = 61.0
    assert seldom.filter(records[3])
    assert records[3].getMessage() == "out of d (and 2 more like it in the last 61 s)"
    other = logging.makeLogRecord({"name": "allswell.http", "levelno": 40, "msg": "another kind"})
    assert seldom.filter(other)
