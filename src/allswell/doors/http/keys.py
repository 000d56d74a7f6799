"""Keys, for those who may make them."""

from __future__ import annotations

from msgspec import Struct

from allswell.domain.access import Act, check_act
from allswell.domain.duration import parse
from allswell.doors.http.call import Call
from allswell.doors.http.route import Nothing, Route
from allswell.doors.http.tasks import Length
from allswell.doors.shapes.key import KeyShape, KeysShape, NewKeyShape


class KeyGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose key, and what it is for; an agent's names the roles that it claims for."""

    name: str
    rights: list[str]
    roles: list[str] = []
    agents: list[str] = []
    expires: Length | None = None


async def create_key(call: Call, given: KeyGiven) -> NewKeyShape:
    """Make a key; its secret is in this answer, and nowhere else."""
    check_act(call.key, Act.KEEP_KEYS)
    lasts = None if given.expires is None else parse(given.expires, where="expires")
    keys = call.house.gate.keyring
    made, secret = await keys.create(
        given.name, given.rights, roles=given.roles, agents=given.agents, lasts=lasts, by=f"key {call.key.name}"
    )
    call.house.gate.forget(made.name)
    return NewKeyShape(KeyShape.of(made, made.created_at), secret)


async def list_keys(call: Call, _: Nothing) -> KeysShape:
    """List the keys, those too that are over."""
    check_act(call.key, Act.KEEP_KEYS)
    return KeysShape.of(await call.house.gate.keyring.all(), await call.watch.now())


async def revoke_key(call: Call, _: Nothing) -> KeyShape:
    """End a key: whoever shows it from now on is refused."""
    check_act(call.key, Act.KEEP_KEYS)
    ended = await call.house.gate.keyring.revoke(call.named("name"), by=f"key {call.key.name}")
    call.house.gate.forget(ended.name)
    return KeyShape.of(ended, await call.watch.now())


ROUTES = (
    Route("POST", "/keys", create_key, KeyGiven, (NewKeyShape,), status=201),
    Route("GET", "/keys", list_keys, Nothing, (KeysShape,)),
    Route("POST", "/keys/{name}/revoke", revoke_key, Nothing, (KeyShape,)),
)
