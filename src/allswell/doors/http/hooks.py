"""`/hooks/NAME`: signed webhooks from elsewhere (Standard Webhooks), which become tasks or answers.

A sender has no key of ours but a secret that both sides know: the signature of the id, the moment and the body is its
proof. A delivery whose moment is too far from ours is refused, and one that comes again is done once: its id is what
the command, or the task, is known by. Everything else is as for a key: the rules of access, the journal's `key`, limits
of its own for each hook. What is posted is data; it fills places of templates and nothing more (`domain/hook_spec.py`).
"""

from __future__ import annotations

import os
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

from allswell.domain.hook_spec import HookSpec
from allswell.domain.key import HOOKS, Key, Right
from allswell.domain.names import Millis, can_name
from allswell.domain.template import field_at, filled
from allswell.doors.http.call import House, read_body
from allswell.doors.http.limits import Limits
from allswell.doors.http.problem import answer_to
from allswell.doors.sinks.signing import Signer, signer
from allswell.doors.sinks.variables import variable
from allswell.engine.finding import find_question
from allswell.errors import AllswellError, Refused

PREFIX = "/hooks/"
_ID_MOST = 64
_SECONDS_MOST = 11
"""Digits: with one more the year would be past 9999, which nothing here can hold."""
_SECRET_MOST = 1_000


class HookedShape(Struct, frozen=True, omit_defaults=True):
    """What became of a delivery: the task that it made, the question that it answered, or nothing, and why."""

    hook: str
    delivery_id: str
    task_id: str | UnsetType = UNSET
    question_id: str | UnsetType = UNSET
    ignored: str | UnsetType = UNSET


class Hook:
    """One hook, with its secrets."""

    def __init__(self, spec: HookSpec, environ: Mapping[str, str]) -> None:
        self.spec = spec
        where = f"hooks.{spec.name}"
        secrets = [(variable(name, environ, f"{where}.secret_env"), "secret_env") for name in spec.secret_env]
        secrets += [(_read(path, f"{where}.secret_file"), "secret_file") for path in spec.secret_file]
        self._signers: list[Signer] = [signer(secret, where=f"{where}.{field}") for secret, field in secrets]
        right = Right.SUBMITTER if spec.task else Right.OPERATOR
        self.key = Key(f"{HOOKS}{spec.name}", "", (right,), Millis(0))

    def checked(self, headers: Headers, body: bytes, now: int) -> str:
        """The id of a delivery that one of our secrets has signed, and lately; otherwise `Refused`."""
        id_, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        given = headers.get("webhook-signature", "")
        if not id_ or not at or not given:
            text = "a delivery has the headers webhook-id, webhook-timestamp and webhook-signature"
            raise Refused("no_signature", text, where="webhook-signature")
        if len(id_) > _ID_MOST or not can_name(id_):
            raise Refused("bad_header", f"webhook-id must have 1 to {_ID_MOST} characters", where="webhook-id")
        if not (at.isascii() and at.isdigit() and len(at) <= _SECONDS_MOST):
            raise Refused("bad_header", "webhook-timestamp must be seconds since 1970", where="webhook-timestamp")
        try:
            said = body.decode()
        except UnicodeDecodeError:
            raise Refused("not_json", "the body is no UTF-8", where="body") from None
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


def make_hooks(specs: Mapping[str, HookSpec], environ: Mapping[str, str] | None = None) -> dict[str, Hook]:
    """The hooks that are written down, with their secrets; `Refused` if one of them cannot be."""
    found = os.environ if environ is None else environ
    return {name: Hook(spec, found) for name, spec in specs.items()}


class Hooks:
    """All hooks of a server: a door of their own, since no key is shown at it."""

    def __init__(
        self, hooks: Mapping[str, Hook], house: Callable[[], House], limits: Limits, wall: Callable[[], int]
    ) -> None:
        self._hooks = hooks
        self._house = house
        self._limits = limits
        self._wall = wall

    def owns(self, path: str) -> bool:
        """Whether this is a hook's place."""
        return path.startswith(PREFIX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One delivery."""
        request = Request(scope, receive)
        answer: Response
        hook = self._hooks.get(scope["path"].removeprefix(PREFIX))
        try:
            answer = await self._limited(hook, request)
        except AllswellError as error:
            answer = answer_to(error)
        await answer(scope, receive, send)

    async def _limited(self, hook: Hook | None, request: Request) -> Response:
        if hook is None:
            raise Refused("unknown_hook", "there is no such hook", where="path", hint="[hooks.NAME] sets one up")
        if request.method != "POST":
            raise Refused("bad_method", "deliveries are posted", where="method")
        wait = self._limits.enter(hook.key.name)
        if wait is not None:
            text = f"too much is posted to the hook {hook.spec.name}"
            return answer_to(Refused("too_many_calls", text, where="path", hint="wait, and post again"), retry_s=wait)
        try:
            body = await read_body(request, hook.spec.max_body)
            id_ = hook.checked(request.headers, body, self._wall())
            made = await self._taken(hook, id_, body)
            return Response(msgspec.json.encode(made), 202, media_type="application/json")
        finally:
            self._limits.leave(hook.key.name)

    async def _taken(self, hook: Hook, id_: str, body: bytes) -> HookedShape:
        try:
            given = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Refused("not_json", f"the body is not JSON: {error}", where="body") from None
        spec = hook.spec
        kind = given.get("type") if isinstance(given, dict) else None
        if spec.types and kind not in spec.types:
            return HookedShape(spec.name, id_, ignored="its type is none of this hook's")
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
        question = await find_question(watch.views, filled(spec.question, given, where=f"{where}.question"))
        option = filled(spec.option, given, where=f"{where}.option")
        text = filled(spec.text, given, where=f"{where}.text")
        await watch.answer(question, option, text, command=once)
        return HookedShape(spec.name, id_, question_id=question)


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
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no text"
        raise Refused("no_key", f"{where}: {place} cannot be read: {why}", where=where) from None
