"""`serve`: the watch over HTTP, for people, programs and agents that are not on this machine."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import RUNNING, Commands
from allswell.doors.cli.frame import Frame, flush, remark
from allswell.doors.cli.options import Json, Option, Store
from allswell.errors import Refused

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from allswell.doors.http.listening import Address


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        RUNNING,
        "serve",
        serve,
        "allswell serve                               on this machine, port 8420",
        "allswell serve --unix /run/user/1000/watch.sock",
        "allswell serve --listen 0.0.0.0:8420 --tls-cert watch.pem --tls-key watch.key --host watch.example.org",
    )


def serve(
    listen: Annotated[
        str, Option("--listen", "-l", metavar="HOST:PORT", help="Where; a port of 0 is any that is free.")
    ] = "127.0.0.1:8420",
    unix: Annotated[str | None, Option("--unix", metavar="PATH", help="A unix socket instead, for you alone.")] = None,
    tls_cert: Annotated[str | None, Option("--tls-cert", metavar="FILE", help="Its certificate chain, PEM.")] = None,
    tls_key: Annotated[str | None, Option("--tls-key", metavar="FILE", help="The certificate's key, PEM.")] = None,
    behind_proxy: Annotated[
        bool, Option("--behind-proxy", help="A proxy in front of it speaks TLS; required for open addresses without.")
    ] = False,
    host: Annotated[
        list[str] | None, Option("--host", metavar="NAME", help="A name that it is called by; repeatable.")
    ] = None,
    open_metrics: Annotated[
        bool, Option("--open-metrics", help="Tell /metrics without a key; on this machine alone.")
    ] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Serve the watch over HTTP, to whoever shows a key (`allswell key create`).

    It sweeps while it runs. Ctrl-C or SIGTERM stops in good order: whoever waits is let go, whoever is being answered
    gets the answer.
    """
    frame = Frame(store, json=json)
    frame.for_humans("serve")
    _check_installed()
    from msgspec.structs import replace

    from allswell.doors.http.serving import Served, run

    frame.check_there()

    def tell(line: str) -> None:
        if frame.json:
            import time

            from allswell.doors.shapes.moment import moment
            from allswell.doors.shapes.said import SaidShape

            frame.say(SaidShape(moment(time.time_ns() // 1_000_000), line))
            flush()
        else:
            remark(line)

    served = Served(frame.url, frame.settings, frame.home, tell)
    address = _address(listen, unix, tls_cert, tls_key, behind_proxy=behind_proxy, names=host)
    run(served, replace(address, open_metrics=open_metrics))


@contextlib.contextmanager
def listening_at(frame: Frame, place: str) -> Iterator[tuple[socket.socket, Address]]:
    """A socket that listens for this machine alone, as `up --serve` has it: HOST:PORT, or the path of a unix socket."""
    from allswell.app import is_remote

    frame.for_humans("serve")
    _check_installed()
    from allswell.doors.http.listening import check_address, listening

    if is_remote(frame.url):
        raise Refused("not_remote", "the watch is served already, where its store is", where="--serve")
    address = _address(place, place if "/" in place else None, None, None, behind_proxy=False, names=None)
    try:
        check_address(address)
    except Refused as error:
        hint = "`allswell serve` beside it has --tls-cert, --tls-key and --behind-proxy"
        raise Refused(error.code, error.message, where="--serve", hint=hint) from None
    with listening(address) as (made, where):
        yield made, where


def _check_installed() -> None:
    try:
        import prometheus_client  # noqa: F401 - only whether it is there
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        text = "serving over HTTP needs more: pip install 'allswell[server]'"
        raise Refused("no_server", text, where="serve") from error


def _address(
    listen: str,
    unix: str | None,
    certificate: str | None,
    private_key: str | None,
    *,
    behind_proxy: bool,
    names: list[str] | None,
) -> Address:
    from allswell.doors.http.listening import Address

    if unix is not None:
        if certificate is not None or private_key is not None:
            raise Refused("bad_tls", "a unix socket needs no TLS", where="--unix")
        return Address(unix=unix, names=tuple(names or ()))
    place, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port[:6]) > 65_535:
        raise Refused("bad_address", f"{listen!r} must be HOST:PORT, such as 127.0.0.1:8420", where="--listen")
    bare = place.removeprefix("[").removesuffix("]")
    return Address(
        bare or "127.0.0.1",
        int(port),
        certificate=certificate,
        private_key=private_key,
        behind_proxy=behind_proxy,
        names=tuple(names or ()),
    )
