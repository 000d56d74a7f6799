"""`mcp`: the tools for agents on standard input and output, as clients of the Model Context Protocol start them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import WORKING, Commands
from allswell.doors.cli.frame import Frame, remark
from allswell.doors.cli.options import Agent, Option, Store
from allswell.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        WORKING,
        "mcp",
        mcp,
        "claude mcp add allswell -- allswell mcp     in Claude Code; docs/mcp.md tells more",
        "allswell mcp --agent ada --role build       speaks for ada alone",
        "allswell mcp --store https://watch.example.org:8420  the key comes from ALLSWELL_KEY",
    )


def mcp(
    agent: Agent = None,
    role: Annotated[
        list[str] | None, Option("--role", "-r", metavar="ROLE", help="With --agent: claims for this role; repeatable.")
    ] = None,
    store: Store = None,
) -> None:
    """Give agents their tools over the Model Context Protocol (MCP), on standard input and output.

    Where the store is a server's URL, or `allswell serve` runs beside it and ALLSWELL_KEY is set, all is passed on to
    that server. Inside an attempt that has a supervisor, one speaks for that attempt alone.
    """
    frame = Frame(store, json=False)
    if store is None and os.environ.get("ALLSWELL_SOCKET"):
        _within_attempt()
        return
    _outside_attempts(frame)
    server = _server_of(frame)
    if server is not None:
        from allswell.doors.mcp.proxy import run
        from allswell.remote.key_source import key_from

        run(server, key_from(os.environ))
        return
    if role and agent is None:
        raise Refused("usage", "--role goes with --agent: who claims for it?", where="--role")
    frame.check_there()
    try:
        from allswell.doors.mcp.stdio import caller, serve_store
    except ImportError as error:
        raise _not_installed() from error
    serve_store(frame.url, frame.settings, frame.home, caller(agent, role or ()), remark)


def _outside_attempts(frame: Frame) -> None:
    """Refuse to speak past the supervisor of an attempt that this runs in; a client may have dropped the variables."""
    try:
        frame.for_humans("mcp")
    except Refused as error:
        text = "inside an attempt this speaks through its socket alone, and ALLSWELL_SOCKET is not set, or --store is"
        hint = "hand ALLSWELL_SOCKET, _SECRET, _TASK and _TOKEN on to it (in Codex: env_vars)"
        raise Refused(error.code, text, where="mcp", hint=hint) from None


def _within_attempt() -> None:
    from allswell.doors.mcp.attempt_desk import OwnLease

    own = OwnLease.of(os.environ)
    try:
        from allswell.doors.mcp.stdio import serve_attempt
    except ImportError as error:
        raise _not_installed() from error
    if own is not None:
        serve_attempt(own)


def _not_installed() -> Refused:
    return Refused("no_mcp", "the tools for agents need more: pip install 'allswell[mcp]'", where="mcp")


def _server_of(frame: Frame) -> str | None:
    """The server to pass everything on to; None: the store is opened here."""
    from allswell.domain.store_url import scheme_of
    from allswell.remote.key_source import FILE_VARIABLE, VARIABLE

    if scheme_of(frame.url) in ("https", "http", "http+unix"):
        return frame.url
    if not (os.environ.get(VARIABLE) or os.environ.get(FILE_VARIABLE)):
        return None
    return _answering(frame.home)


def _answering(home: Path) -> str | None:
    """The server that is known to serve this folder, if it answers."""
    from allswell.remote.connection import is_there
    from allswell.remote.known import known

    url = known(home)
    return url if url is not None and is_there(url) else None
