"""`key`: what callers from elsewhere show; made, listed, revoked; and links for browsers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.options import Argument, Json, Option, Store
from allswell.interfaces.cli.registry import UPKEEP, Commands
from allswell.interfaces.cli.rendering import Column, paint, plain, sentence, table, when

if TYPE_CHECKING:
    from allswell.domain.access.key import Key
    from allswell.domain.ids import Millis
    from allswell.engine.watch import Watch

Name = Annotated[
    str, Argument(metavar="NAME", help="Its owner: whatever is done with the key is recorded under this name.")
]


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
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
    store: Store = None,
    json: Json = False,
) -> None:
    """Make a key for a person or a program on another machine. It is shown once.

    A viewer reads. A submitter submits tasks. An agent claims tasks of its roles and reports on them. An operator
    reads, submits, answers and cancels. An admin does all that and makes keys.
    """
    from allswell.domain.duration import parse
    from allswell.views.settings import KeyShape, NewKeyShape

    context = CliContext(store, json=json)
    context.for_humans("key create")
    lasts = None if expires is None else parse(expires, where="--expires")

    async def work(watch: Watch) -> tuple[Key, str]:
        from allswell.engine.access.keys import Keyring

        keys = Keyring(watch)
        return await keys.create(name, right or (), roles=role or (), agents=agent or (), lasts=lasts, by=_who())

    key, secret = context.run(work, making=True)
    context.say(NewKeyShape(KeyShape.of(key, key.created_at), secret), secret)
    if sys.stdout.isatty():
        context.hint("It is not shown again. Keep it in a file that only you can read, or in ALLSWELL_KEY.")


def link(
    name: Annotated[str, Argument(metavar="NAME", help="The name of a viewer's, operator's or admin's key.")],
    at: Annotated[
        str | None, Option("--at", metavar="URL", help="The server's address. Default: the server on this machine.")
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Print a link that opens the page with a key. It works once, for ten minutes.

    An earlier link no longer works.
    """
    from allswell.remote.discovery import known
    from allswell.views.settings import LoginLinkShape

    context = CliContext(store, json=json)
    context.for_humans("key link")

    async def work(watch: Watch) -> str:
        from allswell.engine.access.keys import make_link

        return await make_link(watch, name, by=_who())

    here = known(context.home) or ""
    place = at or (here if here.startswith("http") and "+unix" not in here else "http://127.0.0.1:8420")
    url = f"{place.rstrip('/')}/enter?link={context.run(work)}"
    context.say(LoginLinkShape(name, url), url)


def list_keys(
    all_: Annotated[bool, Option("--all", "-a", help="Also keys that have expired or were revoked.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """List valid keys and their rights."""
    from allswell.domain.access.key import is_over
    from allswell.views.settings import KeysShape

    context = CliContext(store, json=json)

    async def work(watch: Watch) -> tuple[list[Key], Millis]:
        from allswell.engine.access.keys import Keyring

        now = await watch.now()
        return [key for key in await Keyring(watch).all() if all_ or not is_over(key, now)], now

    found, now = context.run(work, sweeping=False)
    shape = KeysShape.of(found, now)
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


def revoke(
    name: Annotated[str, Argument(metavar="NAME", help="The key's name.")], store: Store = None, json: Json = False
) -> None:
    """Revoke a key: it is refused from now on."""
    from allswell.views.settings import KeyShape

    context = CliContext(store, json=json)
    context.for_humans("key revoke")

    async def work(watch: Watch) -> Key:
        from allswell.engine.access.keys import Keyring

        return await Keyring(watch).revoke(name, by=_who())

    key = context.run(work)
    words = f"the key {paint(plain(key.name), 'bold')} is revoked"
    context.say(KeyShape.of(key, key.created_at), sentence(words))


def _who() -> str:
    from allswell.store.files import user_name

    return user_name(os.geteuid())
