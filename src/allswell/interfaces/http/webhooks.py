"""`/hooks/NAME`: signed webhooks from elsewhere (Standard Webhooks), which become tasks or answers.

A sender has no key of ours but a secret that both sides know: the signature of the id, the moment and the body is its
proof. A delivery whose moment is too far from ours is refused, and one that comes again is done once: its id is what
the command, or the task, is known by. Everything else is as for a key: the rules of access, the journal's `key`, limits
of its own for each hook. What is posted is data; it fills places of templates and nothing more
(`domain/notify/spec.py`).

A stranger can post anything. So a delivery counts against a hook's limits only once its signature was checked; a name
that no hook has is answered as a hook whose secret the sender does not know; and bodies that are still coming are held
up to so many bytes in all: beyond that the oldest is dropped, so that bodies that never come keep no sender out.
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hmac import compare_digest
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from allswell.actions.operator import Operator
from allswell.domain.access.key import HOOKS, Key, Right
from allswell.domain.ids import Millis, can_name
from allswell.domain.notify.spec import HookSpec
from allswell.domain.values import field_at, filled
from allswell.errors import AllswellError, Refused
from allswell.interfaces.http.request_context import ServerState, read_body, too_big
from allswell.interfaces.http.routing import answer_to
from allswell.interfaces.http.security import KEY, RequestLimits
from allswell.interfaces.notifications.sink import variable
from allswell.interfaces.notifications.webhook import Signer, signer

PREFIX = "/hooks/"
_ID_MOST = 64
_SECONDS_MOST = 11
"""Digits: with one more the year would be past 9999, which nothing here can hold."""
_SECRET_MOST = 1_000
UNCHECKED_MOST = 8 << 20
"""Bytes of bodies that are held, before their signatures can be checked."""


class HookedShape(Struct, frozen=True, omit_defaults=True):
    """What became of a delivery: the task that it made, the question that it answered, or nothing, and why."""

    hook: str
    delivery_id: str
    task_id: str | UnsetType = UNSET
    question_id: str | UnsetType = UNSET
    ignored: str | UnsetType = UNSET


class IncomingHook:
    """One hook, with its secrets."""

    def __init__(self, spec: HookSpec, environ: Mapping[str, str]) -> None:
        self.spec = spec
        where = f"hooks.{spec.name}"
        written = [(variable(name, environ, f"{where}.secret_env"), "secret_env") for name in spec.secret_env]
        written += [(_read(path, f"{where}.secret_file"), "secret_file") for path in spec.secret_file]
        self._signers: list[Signer] = [signer(secret, where=f"{where}.{field}") for secret, field in written]
        right = Right.SUBMITTER if spec.task else Right.OPERATOR
        self.key = Key(f"{HOOKS}{spec.name}", "", (right,), Millis(0))

    def checked(self, headers: Headers, body: bytes, now: int) -> str:
        """The id of a delivery that one of our secrets has signed, and lately; otherwise `Refused`."""
        id_, at, given = check_signature_headers(headers)
        try:
            said = body.decode()
        except UnicodeDecodeError:
            raise Refused("not_json", "the body is not UTF-8", where="body") from None
        when = datetime.fromtimestamp(int(at), tz=UTC)
        ours = [sign(id_, when, said).encode() for sign in self._signers]
        theirs = [one.encode() for one in given.split(" ")[:20]]
        if not any([compare_digest(one, other) for one in ours for other in theirs]):  # noqa: C419 - all of them, always
            raise Refused("bad_signature", "no secret of this hook has signed this", where="webhook-signature")
        off = abs(now - int(at) * 1_000)
        if off > self.spec.tolerance:
            text = f"the delivery is {off // 1_000} s off, more than the {self.spec.tolerance // 1_000} s that may be"
            raise Refused("stale_delivery", text, where="webhook-timestamp")
        return id_


def check_signature_headers(headers: Headers) -> tuple[str, str, str]:
    """The id, the moment and the signatures of a delivery; `Refused` if they cannot be any."""
    id_, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    signatures = headers.get("webhook-signature", "")
    if not id_ or not at or not signatures:
        text = "a delivery has the headers webhook-id, webhook-timestamp and webhook-signature"
        raise Refused("no_signature", text, where="webhook-signature")
    if len(id_) > _ID_MOST or not can_name(id_):
        raise Refused("bad_header", f"webhook-id must have 1 to {_ID_MOST} characters", where="webhook-id")
    if not (at.isascii() and at.isdigit() and len(at) <= _SECONDS_MOST):
        raise Refused("bad_header", "webhook-timestamp must be seconds since 1970", where="webhook-timestamp")
    return id_, at, signatures


def make_hooks(specs: Mapping[str, HookSpec]) -> dict[str, IncomingHook]:
    """The hooks that are written down, with their secrets; `Refused` if one of them cannot be."""
    return {name: IncomingHook(spec, os.environ) for name, spec in specs.items()}


def absent_hook() -> IncomingHook:
    """Stands for every name that no hook has: its secret is chance, so it refuses all deliveries as any hook would."""
    chance = base64.b64encode(secrets.token_bytes(32)).decode()
    return IncomingHook(HookSpec(name="", secret_env=("ABSENT",), task="-"), {"ABSENT": chance})


class Hooks:
    """All hooks of a server: a door of their own, since no key is shown at it."""

    def __init__(
        self,
        hooks: Mapping[str, IncomingHook],
        house: Callable[[], ServerState],
        limits: RequestLimits,
        wall: Callable[[], int],
    ) -> None:
        self._hooks = hooks
        self._house = house
        self._limits = limits
        self._wall = wall
        self._absent = absent_hook() if hooks else None
        self._body_most = max((hook.spec.max_body for hook in hooks.values()), default=0)
        """The same for all names, or the answer to a large body would tell which hooks there are."""
        self._unchecked: dict[asyncio.Future[bytes], int] = {}
        """How much has come of bodies that are being read, the oldest first."""
        self._held = 0
        self._room = max(UNCHECKED_MOST, 4 * self._body_most)

    def owns(self, path: str) -> bool:
        """Whether this is a hook's place."""
        return path.startswith(PREFIX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One delivery."""
        request = Request(scope, receive)
        answer: Response
        hook = self._hooks.get(scope["path"].removeprefix(PREFIX), self._absent)
        try:
            answer = await self._answered(hook, request)
        except AllswellError as error:
            answer = answer_to(error)
        await answer(scope, receive, send)

    async def _answered(self, hook: IncomingHook | None, request: Request) -> Response:
        if hook is None:
            raise Refused("unknown_hook", "this server has no hooks", where="path", hint="[hooks.NAME] sets one up")
        if request.method != "POST":
            raise Refused("bad_method", "deliveries are posted", where="method")
        body = await self._read(request)
        id_ = hook.checked(request.headers, body, self._wall())
        request.scope[KEY] = hook.key
        if len(body) > hook.spec.max_body:
            raise too_big(hook.spec.max_body)
        wait = self._limits.enter(hook.key.name)
        if wait is not None:
            text = f"too much is posted to the hook {hook.spec.name}"
            return answer_to(Refused("too_many_calls", text, where="path", hint="wait, and post again"), retry_s=wait)
        try:
            made = await self._taken(hook, id_, body)
            return Response(msgspec.json.encode(made), 202, media_type="application/json")
        finally:
            self._limits.leave(hook.key.name)

    async def _read(self, request: Request) -> bytes:
        check_signature_headers(request.headers)
        reading = asyncio.ensure_future(read_body(request, self._body_most, lambda size: self._hold(reading, size)))
        self._unchecked[reading] = 0
        try:
            await asyncio.wait([reading])
            if reading.cancelled():
                text = "too much is posted at the same time, and this body was too long in coming"
                raise Refused("too_many_calls", text, where="path", hint="post it again")
            return reading.result()
        finally:
            reading.cancel()
            self._held -= self._unchecked.pop(reading, 0)

    def _hold(self, reading: asyncio.Future[bytes], size: int) -> None:
        """Count bytes that came of a body. Where all bodies are too much, the oldest that has any bytes is dropped."""
        if reading not in self._unchecked:
            return
        self._unchecked[reading] += size
        self._held += size
        while self._held > self._room:
            oldest = next(one for one, held in self._unchecked.items() if held)
            self._held -= self._unchecked.pop(oldest)
            oldest.cancel()

    async def _taken(self, hook: IncomingHook, id_: str, body: bytes) -> HookedShape:
        try:
            given = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused("not_json", f"the body is not JSON: {error}", where="body") from None
        spec = hook.spec
        kind = given.get("type") if isinstance(given, dict) else None
        if spec.types and kind not in spec.types:
            return HookedShape(spec.name, id_, ignored="this hook does not take its type")
        watch = self._house().gate.watch_for(hook.key)
        where = f"hooks.{spec.name}"
        once = f"{hook.key.name}/{id_}"
        if spec.task:
            task = {
                "name": filled(spec.task, given, where=f"{where}.task"),
                "role": spec.role,
                "priority": spec.priority,
                "payload": field_at(spec.payload, given, where=f"{where}.payload") if spec.payload else given,
                "key": once,
                **({"run": spec.run} if spec.run else {}),
            }
            ids: list[str] = []
            await watch.submit_all([task], told=ids.extend)
            return HookedShape(spec.name, id_, task_id=ids[0])
        question = filled(spec.question, given, where=f"{where}.question")
        option = filled(spec.option, given, where=f"{where}.option")
        text = filled(spec.text, given, where=f"{where}.text")
        answered = await Operator(watch, command=once).answer(question, option, text)
        return HookedShape(spec.name, id_, question_id=answered.shape.question_id)


def _read(path: str, where: str) -> str:
    """The secret in a file that only its owner can read."""
    place = Path(path).expanduser()
    try:
        with place.open("rb") as file:
            about = os.fstat(file.fileno())
            if about.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(about.st_mode) & 0o077:
                raise Refused("open_key", f"{where}: {place} can be read by others; `chmod 600` it", where=where)
            return file.read(_SECRET_MOST).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text"
        raise Refused("no_key", f"{where}: {place} cannot be read: {why}", where=where) from None
