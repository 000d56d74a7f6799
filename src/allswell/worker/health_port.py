"""Liveness, readiness and figures over HTTP: `/healthz`, `/readyz`, `/metrics`; on loopback unless told otherwise.

It stands in the supervising process where there is one, so it answers while a worker's interpreter is held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from allswell.errors import Refused
from allswell.worker.status import WorkerStatus, prometheus

LOOPBACK = "127.0.0.1"
_SLOWEST = 10.0
"""Seconds that one request may take to come."""


class HealthPort:
    """A small HTTP server in a thread of its own."""

    def __init__(self, port: int, statuses: Callable[[], Sequence[WorkerStatus]], host: str = LOOPBACK) -> None:
        answers = _answering(statuses)
        try:
            self._server = ThreadingHTTPServer((host, port), answers)
        except (OSError, OverflowError) as error:
            text = f"the health port {host}:{port} cannot be opened: {error}"
            raise Refused("bad_port", text, where="--health-port") from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="allswell-health", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def _answering(statuses: Callable[[], Sequence[WorkerStatus]]) -> type[BaseHTTPRequestHandler]:
    class HealthAnswers(BaseHTTPRequestHandler):
        timeout = _SLOWEST

        def do_GET(self) -> None:
            now = statuses()
            match self.path.partition("?")[0]:
                case "/healthz":
                    self._say(bool(now) and all(one.alive for one in now), _told(now))
                case "/readyz":
                    self._say(bool(now) and all(one.ready for one in now), _told(now))
                case "/metrics":
                    self._say(True, prometheus(now).encode(), "text/plain; version=0.0.4; charset=utf-8")
                case _:
                    self._answer(HTTPStatus.NOT_FOUND, b"/healthz, /readyz and /metrics are here\n", "text/plain")

        def _say(self, good: bool, body: bytes, kind: str = "application/json") -> None:  # noqa: FBT001 - one meaning
            self._answer(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, body, kind)

        def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing: probes come every few seconds."""

    return HealthAnswers


def _told(statuses: Sequence[WorkerStatus]) -> bytes:
    return msgspec.json.encode({"workers": statuses}) + b"\n"
