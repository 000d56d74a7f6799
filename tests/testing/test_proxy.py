"""The proxy does to real sockets what its words say, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from allswell.testing.proxy import Proxy

PATIENCE = 10.0


class EchoServer:
    """Answers every line with itself, and notes how each connection ended."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.heard: list[bytes] = []
        self.ends: list[str] = []
        self.ended = threading.Semaphore(0)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self.listener.accept()[0],), daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        with end:
            try:
                while said := end.recv(65_536):
                    self.heard.append(said)
                    end.sendall(said)
                self.ends.append("closed")
            except ConnectionResetError:
                self.ends.append("reset")
        self.ended.release()


@pytest.fixture
def server() -> Iterator[EchoServer]:
    made = EchoServer()
    yield made
    made.listener.close()


@pytest.fixture
def proxy(server: EchoServer) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", server.port) as made:
        yield made


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE) as made:
        made.sendall(b"hello")
        assert made.recv(100) == b"hello"
        yield made


def silent(client: socket.socket) -> bool:
    """Whether nothing comes for a moment; a cut can only be seen by waiting for what does not come."""
    client.settimeout(0.1)
    try:
        client.recv(100)
    except TimeoutError:
        return True
    finally:
        client.settimeout(PATIENCE)
    return False


def call(port: int) -> bytes:
    """Connect and wait for a word."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as made:
        return made.recv(100)


def test_it_passes_bytes_and_endings_on(server: EchoServer, client: socket.socket) -> None:
    much = bytes(range(256)) * 20_000
    threading.Thread(target=client.sendall, args=(much,), daemon=True).start()
    got = b""
    while len(got) < len(much):
        got += client.recv(65_536)
    assert got == much
    client.shutdown(socket.SHUT_WR)
    assert client.recv(100) == b""
    assert server.ended.acquire(timeout=PATIENCE)
    assert server.ends == ["closed"]


def test_a_cut_to_the_client_lets_the_server_hear(server: EchoServer, proxy: Proxy, client: socket.socket) -> None:
    proxy.cut("to_client")
    client.sendall(b"one way")
    assert silent(client)
    assert server.heard[-1] == b"one way"
    proxy.mend()
    assert client.recv(100) == b"one way", "TCP repeats what was lost"


def test_a_cut_to_the_server_holds_what_is_said(server: EchoServer, proxy: Proxy, client: socket.socket) -> None:
    proxy.cut("to_server")
    client.sendall(b"into the void")
    assert silent(client)
    assert server.heard == [b"hello"]
    proxy.mend()
    assert client.recv(100) == b"into the void"


def test_a_cut_holds_for_new_connections_too(proxy: Proxy, client: socket.socket) -> None:
    proxy.cut()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE) as other:
        other.sendall(b"anybody?")
        assert silent(other)
        proxy.mend()
        assert other.recv(100) == b"anybody?"
    assert proxy.connections == 2


def test_a_reset_reaches_both_ends(server: EchoServer, proxy: Proxy, client: socket.socket) -> None:
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(100)
    assert server.ended.acquire(timeout=PATIENCE)
    assert server.ends == ["reset"]
    assert proxy.open == 0


def test_an_end_behind_a_cut_is_heard_of_when_it_is_mended(
    server: EchoServer, proxy: Proxy, client: socket.socket
) -> None:
    proxy.cut("to_server")
    client.close()
    assert not server.ended.acquire(timeout=0.1)
    proxy.mend()
    assert server.ended.acquire(timeout=PATIENCE)


def test_hanging_up_is_an_ordinary_end(server: EchoServer, proxy: Proxy, client: socket.socket) -> None:
    proxy.hang_up()
    assert client.recv(100) == b""
    assert server.ended.acquire(timeout=PATIENCE)
    assert server.ends == ["closed"]


def test_refused_connections_are_reset(proxy: Proxy, client: socket.socket) -> None:
    proxy.refusing = True
    with pytest.raises(ConnectionResetError):
        call(proxy.port)
    client.sendall(b"still here")
    assert client.recv(100) == b"still here", "those that are open stay so"


def test_a_server_that_is_gone_is_a_reset(server: EchoServer, proxy: Proxy) -> None:
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()
    with pytest.raises(ConnectionResetError):
        call(proxy.port)


@pytest.mark.realtime
def test_a_delay_counts_each_way(proxy: Proxy, client: socket.socket) -> None:
    proxy.delay = 0.05
    begun = time.monotonic()
    client.sendall(b"slow")
    assert client.recv(100) == b"slow"
    assert time.monotonic() - begun >= 0.1


def test_its_url_keeps_all_but_the_place(proxy: Proxy) -> None:
    assert proxy.before("postgresql://me:pa%40ss@db.example:5432/x?a=b") == (
        f"postgresql://me:pa%40ss@127.0.0.1:{proxy.port}/x?a=b"
    )
    assert proxy.before("postgresql://db/x") == f"postgresql://127.0.0.1:{proxy.port}/x"


def test_closing_twice(server: EchoServer) -> None:
    with Proxy("127.0.0.1", server.port) as made:
        made.close()
