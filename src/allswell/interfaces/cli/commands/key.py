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

Name = Annotated[str, Argument(metavar="NAME", help="Whose it is: everything done with it is said to be theirs.")]


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
        Option("--role", "-r", metavar="ROLE", help="An agent's: claims for this role; repeatable, * is any."),
    ] = None,
    agent: Annotated[
        list[str] | None,
        Option("--agent", "-a", metavar="NAME", help="An agent's: holds tasks under it; repeatable. Default: NAME."),
    ] = None,
    expires: Annotated[str | None, Option("--expires", metavar="TIME", help="It holds for so long.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Make a key for a caller from elsewhere, and show it this once.

    A viewer looks. A submitter hands over work. An agent claims for its roles and speaks for its own leases. An
    operator looks, hands over, answers and calls off. An admin does all that and makes keys.
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
    name: Annotated[str, Argument(metavar="NAME", help="Whose key: a viewer's, an operator's or an admin's.")],
    at: Annotated[
        str | None, Option("--at", metavar="URL", help="Where the server is reached. Default: where it runs here.")
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Print a link that opens the page for somebody with a key: it works once, for ten minutes.

    The one that was made before works no longer.
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
    all_: Annotated[bool, Option("--all", "-a", help="Those that are over, too.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """List the keys that hold, and what each is for."""
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
    """End a key: whoever shows it from now on is refused."""
    from allswell.views.settings import KeyShape

    context = CliContext(store, json=json)
    context.for_humans("key revoke")

    async def work(watch: Watch) -> Key:
        from allswell.engine.access.keys import Keyring

        return await Keyring(watch).revoke(name, by=_who())

    key = context.run(work)
    words = f"the key {paint(plain(key.name), 'bold')} holds no longer"
    context.say(KeyShape.of(key, key.created_at), sentence(words))


def _who() -> str:
    from allswell.store.files import user_name

    return user_name(os.geteuid())
