"""`serve`, `key` and `mcp`: the watch over HTTP, the keys of its callers, and tools for agents on standard input."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.values import scheme_of
from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, flush, remark
from allswell.interfaces.cli.options import Agent, Argument, Option, Store
from allswell.interfaces.cli.registry import RUNNING, UPKEEP, WORKING, Commands
from allswell.interfaces.cli.rendering import Column, plain, table, when

if TYPE_CHECKING:
    import socket

    from allswell.domain.access.key import Key
    from allswell.engine.watch import Watch
    from allswell.interfaces.http.listener import ListenAddress


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(
        WORKING,
        "mcp",
        mcp,
        "claude mcp add allswell -- allswell mcp     in Claude Code; see `allswell help agent-tools`",
        "allswell mcp --agent ada --role build       acts for ada only",
        "allswell mcp --store https://watch.example.org:8420  the key comes from ALLSWELL_KEY",
    )
    app.add(
        UPKEEP,
        "key create",
        create,
        "allswell key create ci --right submitter --expires 90d",
        "allswell key create ada --right agent --role build --role test",
        "allswell key create mia --right operator",
    )
    app.add(
        UPKEEP, "key link", link, "allswell key link mia", "allswell key link mia --at https://watch.example.org:8420"
    )
    app.add(UPKEEP, "key list", list_keys, "allswell key list", "allswell key list --all --json")
    app.add(UPKEEP, "key revoke", revoke, "allswell key revoke ci")
    app.add(UPKEEP, "key revoke-links", revoke_links, "allswell key revoke-links")
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
        str, Option("--listen", "-l", metavar="HOST:PORT", help="Address; port 0 is any free port.")
    ] = "127.0.0.1:8420",
    unix: Annotated[
        str | None, Option("--unix", metavar="PATH", help="Use a unix socket that only you can open.")
    ] = None,
    tls_cert: Annotated[str | None, Option("--tls-cert", metavar="FILE", help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[str | None, Option("--tls-key", metavar="FILE", help="Key of the certificate, PEM.")] = None,
    behind_proxy: Annotated[
        bool, Option("--behind-proxy", help="A proxy in front of it does TLS. Without TLS, other addresses need this.")
    ] = False,
    host: Annotated[
        list[str] | None, Option("--host", metavar="NAME", help="A host name that it answers to; repeatable.")
    ] = None,
    open_metrics: Annotated[
        bool, Option("--open-metrics", help="Serve /metrics without a key, on this machine only.")
    ] = False,
    *,
    context: CliContext,
) -> None:
    """Serve the page and the HTTP API; callers need a key (`allswell key create`).

    The first start makes a key and prints a link that opens the page. Time limits are enforced while it runs. Ctrl-C or
    SIGTERM stops it; requests that are being answered are finished first.
    """
    context.for_humans("serve")
    _check_installed()

    from allswell.interfaces.http.server import Served, run

    if not context.nothing_yet:  # else it begins here
        context.check_there()

    def tell(line: str) -> None:
        if context.json:
            from allswell.views.commands import SaidShape

            context.say(SaidShape.now(line))
            flush()
        else:
            remark(line)

    served = Served(context.url, context.settings, context.home, tell)
    address = _address(listen, unix, tls_cert, tls_key, behind_proxy=behind_proxy, names=host)
    run(served, replace(address, open_metrics=open_metrics))


@contextlib.contextmanager
def listening_at(context: CliContext, place: str) -> Iterator[tuple[socket.socket, ListenAddress]]:
    """A socket that listens for this machine alone, as `up --serve` has it: HOST:PORT, or the path of a unix socket."""
    from allswell.app import is_remote

    context.for_humans("serve")
    _check_installed()
    from allswell.interfaces.http.listener import check_address, listening

    if is_remote(context.url):
        raise Refused("not_remote", "the store is on a server already", where="--serve")
    address = _address(place, place if "/" in place else None, None, None, behind_proxy=False, names=None)
    try:
        check_address(address)
    except Refused as error:
        hint = "run `allswell serve` beside it: it has --tls-cert, --tls-key and --behind-proxy"
        raise Refused(error.code, error.message, where="--serve", hint=hint) from None
    with listening(address) as (made, where):
        yield made, where


def _check_installed() -> None:
    try:
        import prometheus_client  # noqa: F401 - only whether it is there
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        text = "serving over HTTP needs the extra `server`: in Allswell's clone, type `uv tool install '.[server]'`"
        raise Refused("no_server", text, where="serve") from error


def _address(
    listen: str,
    unix: str | None,
    certificate: str | None,
    private_key: str | None,
    *,
    behind_proxy: bool,
    names: list[str] | None,
) -> ListenAddress:
    from allswell.interfaces.http.listener import ListenAddress

    if unix is not None:
        if certificate is not None or private_key is not None:
            raise Refused("bad_tls", "a unix socket needs no TLS", where="--unix")
        return ListenAddress(unix=unix, names=tuple(names or ()))
    place, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port[:6]) > 65_535:
        raise Refused("bad_address", f"{listen!r} must be HOST:PORT, such as 127.0.0.1:8420", where="--listen")
    bare = place.removeprefix("[").removesuffix("]")
    return ListenAddress(
        bare or "127.0.0.1",
        int(port),
        certificate=certificate,
        private_key=private_key,
        behind_proxy=behind_proxy,
        names=tuple(names or ()),
    )


# `mcp`: the tools for agents on standard input and output, as clients of the Model Context Protocol start them.


def mcp(
    agent: Agent = None,
    role: Annotated[
        list[str] | None,
        Option("--role", "-r", metavar="ROLE", help="With --agent: claim tasks of this role; repeatable."),
    ] = None,
    store: Store = None,
) -> None:
    """Give agents their tools over the Model Context Protocol (MCP), on standard input and output.

    Where the store is a server's URL, or `allswell serve` runs beside it and ALLSWELL_KEY is set, calls are passed on
    to that server. Inside an attempt under a supervisor, the tools act for that attempt only.
    """
    context = CliContext(store, json=False)
    if store is None and os.environ.get("ALLSWELL_SOCKET"):
        _within_attempt()
        return
    _outside_attempts(context)
    server = _server_of(context)
    if server is not None:
        from allswell.interfaces.mcp.proxy import run
        from allswell.remote.discovery import key_from

        run(server, key_from(os.environ))
        return
    if role and agent is None:
        raise Refused("usage", "--role needs --agent", where="--role")
    context.check_there()
    try:
        from allswell.interfaces.mcp.server import caller, serve_store
    except ImportError as error:
        raise _not_installed() from error
    serve_store(context.url, context.settings, context.home, caller(agent, role or ()), remark)


def _outside_attempts(context: CliContext) -> None:
    """Refuse to speak past the supervisor of an attempt that this runs in; a client may have dropped the variables."""
    try:
        context.for_humans("mcp")
    except Refused as error:
        if error.code != "not_human":
            raise
        text = "inside an attempt this works only through its socket, and ALLSWELL_SOCKET is not set, or --store is"
        hint = "pass ALLSWELL_SOCKET, _SECRET, _TASK and _TOKEN on to it (in Codex: env_vars)"
        raise Refused(error.code, text, where="mcp", hint=hint) from None


def _within_attempt() -> None:
    from allswell.interfaces.mcp.handlers import OwnLease

    own = OwnLease.of(os.environ)
    try:
        from allswell.interfaces.mcp.server import serve_attempt
    except ImportError as error:
        raise _not_installed() from error
    if own is not None:
        serve_attempt(own)


def _not_installed() -> Refused:
    return Refused(
        "no_mcp",
        "the tools for agents need the extra `mcp`: in Allswell's clone, type `uv tool install '.[mcp]'`",
        where="mcp",
    )


def _server_of(context: CliContext) -> str | None:
    """The server to pass everything on to; None: the store is opened here."""
    from allswell.remote.discovery import FILE_VARIABLE, VARIABLE

    if scheme_of(context.url) in ("https", "http", "http+unix"):
        return context.url
    if not (os.environ.get(VARIABLE) or os.environ.get(FILE_VARIABLE)):
        return None
    return _answering(context.home)


def _answering(home: Path) -> str | None:
    """The server that is known to serve this folder, if it answers."""
    from allswell.remote.connection import is_there
    from allswell.remote.discovery import known

    url = known(home)
    return url if url is not None and is_there(url) else None


# `key`: what callers from elsewhere show; made, listed, revoked; and links for browsers.

Name = Annotated[
    str, Argument(metavar="NAME", help="Its owner: whatever is done with the key is recorded under this name.")
]


def create(
    name: Name,
    right: Annotated[
        list[str] | None,
        Option("--right", metavar="RIGHT", help="viewer, submitter, agent, supervisor, operator or admin."),
    ] = None,
    role: Annotated[
        list[str] | None,
        Option(
            "--role",
            "-r",
            metavar="ROLE",
            help="For an agent: the role whose tasks it may claim; repeatable, * is any.",
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        Option(
            "--agent", "-a", metavar="NAME", help="For an agent: the name it works under; repeatable. Default: NAME."
        ),
    ] = None,
    expires: Annotated[
        str | None, Option("--expires", metavar="TIME", help="How long the key is valid. Default: for ever.")
    ] = None,
    *,
    context: CliContext,
) -> None:
    """Make a key for a person or a program on another machine. It is shown once.

    A viewer reads. A submitter submits tasks. An agent claims tasks of its roles and reports on them. An operator
    reads, submits, answers and cancels. An admin does all that and makes keys.
    """
    made = context.decide(
        "key create",
        lambda operator: operator.create_key(name, right or (), roles=role or (), agents=agent or (), expires=expires),
        making=True,
    )
    context.say(made.shape, made.says)
    if sys.stdout.isatty():
        context.hint("It is not shown again. Keep it in a file that only you can read, or in ALLSWELL_KEY.")


def link(
    name: Annotated[str, Argument(metavar="NAME", help="The name of a viewer's, operator's or admin's key.")],
    at: Annotated[
        str | None,
        Option("--at", metavar="URL", help="The server's address. Default: public_url, or the server on this machine."),
    ] = None,
    *,
    context: CliContext,
) -> None:
    """Print a link that opens the page with a key. It works once, for ten minutes.

    An earlier link no longer works.
    """
    from allswell.remote.discovery import known

    here = known(context.home) or ""
    public = context.settings.public_origin
    address = at or public or (here if here.startswith("http") and "+unix" not in here else "http://127.0.0.1:8420")
    made = context.decide("key link", lambda operator: operator.make_login_link(name, address))
    context.say(made.shape, made.says)


def list_keys(
    all_: Annotated[bool, Option("--all", "-a", help="Also keys that have expired or were revoked.")] = False,
    *,
    context: CliContext,
) -> None:
    """List valid keys and their rights."""
    from allswell.domain.access.key import is_over
    from allswell.views.settings import KeyShape, KeysShape

    async def work(watch: Watch) -> tuple[list[Key], Millis]:
        from allswell.engine.access.keys import Keyring

        now = await watch.now()
        return [key for key in await Keyring(watch).all() if all_ or not is_over(key, now)], now

    found, now = context.run(work, sweeping=False)
    shape = KeysShape([KeyShape.of(key, now) for key in found])
    rows = []
    for key, shown in zip(found, shape.keys, strict=True):
        until = "" if key.expires_at is None else when(key.expires_at, now)
        made = f"{when(key.created_at, now)}{f' by {plain(key.by)}' if key.by else ''}"
        rows.append([key.name, ", ".join(key.rights), ", ".join(key.roles), shown.state, until, made])
    heads = (
        Column("NAME", 12),
        Column("FOR", 12),
        Column("ROLES", 12, spare=True),
        Column("STATE"),
        Column("UNTIL"),
        Column("MADE", 12),
    )
    context.say(shape, table(heads, rows) if rows else "No keys.")


def revoke(name: Annotated[str, Argument(metavar="NAME", help="The key's name.")], *, context: CliContext) -> None:
    """Revoke a key: it is refused from now on."""
    context.show(context.decide("key revoke", lambda operator: operator.revoke_key(name)))


def revoke_links(*, context: CliContext) -> None:
    """Revoke all links in alerts that answer questions. Alerts that are sent from now on have new ones."""
    context.show(context.decide("key revoke-links", lambda operator: operator.revoke_links()))
