"""From what a caller says of a new task to the task as the core takes it: ids, policies, durations, JSON text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from allswell.domain.argv import command_of
from allswell.domain.command import NewTask
from allswell.domain.duration import parse
from allswell.domain.meant import nearest
from allswell.domain.names import Millis, RunId
from allswell.domain.plain_data import to_json
from allswell.domain.policy import DEFAULT, Policy
from allswell.engine.budgeting import money
from allswell.engine.ids import Ids, task_for_key
from allswell.errors import Refused


class Form(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """What a caller may say of a new task; what is `Any` here is looked at by name."""

    name: str
    payload: Any = None
    role: str = ""
    priority: int = 0
    services: Any = ()
    needs: Any = ()
    barred: Any = ()
    run: RunId | None = None
    not_before: Millis | None = None
    critical: bool = False
    if_need_fails: Literal["skip", "run"] = "skip"
    policy: Any = None
    timeout: Any = None
    idle: Any = None
    retries: Any = None
    max_cost_usd: Any = None
    verify: Any = None
    key: Any = None


def _listed(value: object, where: str) -> tuple[Any, ...]:
    """A list of names without repetitions, in order; a string is not a list of its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise Refused("bad_field", f"{where} must be a list", where=where)
    names = []
    for name in value:
        if not isinstance(name, str):
            raise Refused("bad_field", f"{where} must be a list of names, and {name!r} is none", where=where)
        names.append(name)
    return tuple(dict.fromkeys(names))


def _what_is_wrong(given: Mapping[str, Any], place: int, error: msgspec.ValidationError) -> Refused:
    """The error for a task that could not be read, in words of the caller's."""
    wrong = _wrong_form(given, place, error)
    wrong.place = place
    return wrong


def _wrong_form(given: Mapping[str, Any], place: int, error: msgspec.ValidationError) -> Refused:
    name = given.get("name")
    if not isinstance(name, str):
        return Refused("bad_name", f"task number {place + 1} has no name", where="name")
    for field in given:
        if field not in Form.__struct_fields__:
            near = nearest(str(field), Form.__struct_fields__)
            hint = f"; did you mean {near!r}?" if near else ""
            return Refused("unknown_field", f"a task has no field {field!r}{hint}", where=str(field))
    return Refused("bad_field", f"task {name!r}: {error}", where=name)


class TaskMaker:
    """Makes tasks of forms, with the ids and the policies of one watch."""

    def __init__(self, ids: Ids, policies: Mapping[str, Policy]) -> None:
        self._ids = ids
        self._policies = policies
        self._default = policies.get("", DEFAULT)

    def _new_task(self, form: Form) -> NewTask:
        name, key = form.name, form.key
        return NewTask(
            self._ids.task() if key is None else task_for_key(str(key)),
            name,
            form.run,
            form.role,
            # Sorted: one lane, however they were listed.
            tuple(sorted(_listed(form.services, f"services of {name!r}"))) if form.services != () else (),
            form.priority,
            _listed(form.needs, f"needs of {name!r}") if form.needs != () else (),
            _listed(form.barred, f"barred of {name!r}") if form.barred != () else (),
            "null" if form.payload is None else to_json(form.payload, f"payload of {name!r}"),
            form.not_before,
            form.critical,
            form.if_need_fails,
            self._policy(form),
            key is not None,
        )

    def _policy(self, form: Form) -> Policy:
        """The task's own policy, or its role's, or the default; with what the task sets by itself."""
        if form.policy is None:
            policy = self._policies.get(form.role, self._default)
        else:
            policy = msgspec.convert(msgspec.to_builtins(form.policy), Policy)
        if form.timeout is form.idle is form.retries is form.max_cost_usd is form.verify is None:
            return policy
        changed: dict[str, Any] = {}
        if form.timeout is not None:
            changed["timeout"] = parse(form.timeout, where="timeout")
        if form.idle is not None:
            changed["idle"] = parse(form.idle, where="idle")
        if form.max_cost_usd is not None:
            changed["max_cost"] = money(msgspec.convert(form.max_cost_usd, float), "max_cost_usd")
        if form.verify is not None:
            changed["verify"] = command_of(form.verify, "verify")
        if form.retries is not None:
            retries = msgspec.convert(form.retries, int)
            changed["retry"] = msgspec.structs.replace(policy.retry, retries=retries)
        return msgspec.structs.replace(policy, **changed)

    def policy_for(self, role: str) -> Policy:
        """The policy of a role's tasks that set nothing by themselves."""
        return self._policies.get(role, self._default)

    def new_tasks(self, tasks: Iterable[Mapping[str, Any]]) -> tuple[NewTask, ...]:
        """Tasks from plain mappings; their needs stand as they were named."""
        made = []
        for place, given in enumerate(tasks):
            try:
                made.append(self._new_task(msgspec.convert(given if isinstance(given, dict) else dict(given), Form)))
            except msgspec.ValidationError as error:
                raise _what_is_wrong(given, place, error) from None
            except Refused as refused:
                refused.place = place
                raise
        return tuple(made)
