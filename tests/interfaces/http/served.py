"""A real `allswell serve` in a process of its own, keys for it, and calls to it over a real socket."""

# ruff: noqa: ANN401 - JSON is whatever it is

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from allswell.app import make_watch, store_for
from allswell.engine.access.keys import Keyring
from tests.interfaces.views.outside import check

RIGHTS: Mapping[str, Mapping[str, Any]] = {
    "viewer": {"rights": ["viewer"]},
    "submitter": {"rights": ["submitter"]},
    "operator": {"rights": ["operator"]},
    "admin": {"rights": ["admin"]},
    "ada": {"rights": ["agent"], "roles": ["build", "test"]},
    "bob": {"rights": ["agent"], "roles": ["build"]},
    "warden": {"rights": ["supervisor"], "roles": ["test"]},
    "short": {"rights": ["admin"], "lasts": 1},
    "gone": {"rights": ["admin"]},
}


@dataclass
class Answer:
    """What a call was answered with."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A server, and the keys that it knows."""

    store: str
    url: str
    keys: dict[str, str]
    process: subprocess.Popen[str]
    folder: Path = Path()
    lines: list[str] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 0)

    def connect(self, timeout: float = 60) -> http.client.HTTPConnection:
        if self.url.startswith("https:"):
            trusting = ssl.create_default_context(cafile=self.folder / "own.pem")
            return http.client.HTTPSConnection(*self.place, timeout=timeout, context=trusting)
        return http.client.HTTPConnection(*self.place, timeout=timeout)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = "admin",
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        """One call, on a connection of its own; `key` is the name of one of ours, or one as it is shown."""
        with contextlib.closing(self.connect()) as connection:
            return self.say(connection, method, path, body, key=key, headers=headers, raw=raw)

    def say(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = "admin",
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        sent = dict(headers or {})
        if key is not None:
            sent.setdefault("Authorization", f"Bearer {self.keys.get(key, key)}")
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        full = path if path.startswith(("/healthz", "/readyz", "/api", "/hooks", "/metrics")) else f"/api/v1{path}"
        connection.request(method, full, data, sent)
        got = connection.getresponse()
        return Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read())

    def ok(self, method: str, path: str, body: object = None, **how: Any) -> Any:
        answer = self.call(method, path, body, **how)
        assert answer.status in (200, 201), (method, path, answer.status, answer.body)
        return answer.json

    @property
    def processor_time(self) -> float:
        """Seconds of a processor that the server has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> int:
        """What its process holds in memory, in bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def unread(self) -> int:
        """How many bytes it has written to its standard error that nobody has read."""
        assert self.process.stderr is not None
        count = fcntl.ioctl(self.process.stderr, termios.FIONREAD, bytes(4))
        return int.from_bytes(count, sys.byteorder)


async def make_keys(store: str) -> dict[str, str]:
    async with make_watch(store_for(store)) as watch:
        keys = Keyring(watch)
        made = {name: (await keys.create(name, **how))[1] for name, how in RIGHTS.items()}
        await keys.revoke("gone")
    return made


@contextlib.contextmanager
def serving(folder: Path, *options: str, store: str | None = None, files: int | None = None) -> Iterator[Served]:
    """A server on a store in this folder, or on the one that is named; it is stopped normally.

    `files` is how many files its process may open.
    """
    store = store or f"sqlite:///{folder}/.allswell/allswell.db"
    keys = asyncio.run(make_keys(store))
    with started(folder, store, *(options or ("--listen", "127.0.0.1:0")), files=files) as (process, url):
        served = Served(store, url, keys, process, folder)
        yield served
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@contextlib.contextmanager
def started(
    folder: Path, store: str, *options: str, files: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    bounded = [] if files is None else ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh"]
    command = [*bounded, sys.executable, "-m", "allswell", "serve", *options, "--store", store]
    env = {name: value for name, value in os.environ.items() if not name.startswith("ALLSWELL_")}
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            heard = process.stdout if "--json" in options else process.stderr
            assert heard is not None
            line = heard.readline()
            if "--json" in options:
                assert check("serve", line) == "Said"
                line = json.loads(line)["said"]
            assert line.startswith("serving "), line
            yield process, line.removeprefix("serving ").partition(";")[0]
        finally:
            if process.poll() is None:
                process.kill()
