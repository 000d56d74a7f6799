"""What every command may carry is declared once, and every door is held to it: a refusal in words, never an effect.

Each command is sent with each of its fields out of its bounds through the Python API, over HTTP (`/commands` and the
routes), over MCP and through the socket of an attempt. None may be answered with a bug, a status of 500, or be done.
"""

# ruff: noqa: ANN401 - JSON is whatever it is

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allswell.domain.access.key import Right
from allswell.domain.access.rights import ACT_OF
from allswell.domain.ids import CommandId, TaskId, file_name
from allswell.domain.rules.bounds import check, parts_of
from allswell.domain.rules.command import Cancel, CheckIn, Claim, Command, NewTask, RecordStep, Submit, wire_name
from allswell.domain.task import submit
from allswell.engine.engine import Engine
from allswell.errors import AllswellError, Bug, Refused
from allswell.interfaces.http.server import ROUTES
from allswell.interfaces.mcp.tools import TOOLS
from allswell.remote.wire import CALLS
from allswell.runtime import agent_socket
from allswell.runtime.attempt import AttemptRunner, launch
from allswell.testing.sim.process import engine_of
from tests.engine.stage import Stage, play
from tests.interfaces.http.served import Served, serving
from tests.interfaces.mcp.scene import key_of, tables, told
from tests.runtime.attempt.stage import stage as attempt_stage
from tests.security.out_of_bounds import made, wrong_commands, wrong_values

SET_BY_THE_SERVER = {"asked_as"}
"""Fields in which a caller with a key can say nothing: the server writes what the key is for."""
LOOKS = ("inbox", "status", "answers")
"""Tools that change nothing: what names nothing is answered with nothing. (A key of a submission is only hashed.)"""
KINDS = sorted(ACT_OF, key=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("bounds")) as started:
        yield started


async def carried_out(engine: Engine, command: Command) -> object:
    """By the way that a command of its kind takes through the engine."""
    match command:
        case Claim():
            return await engine.claim(command)
        case CheckIn():
            return await engine.check_in(command)
        case RecordStep():
            await engine.record(command)
            return None
        case _:
            return await engine.do(command)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_command_out_of_its_bounds_is_refused_and_does_nothing(kind: type[Command]) -> None:
    """Through the engine, where all doors meet; and what is within its bounds passes the check."""
    check(made(parts_of(kind)))

    async def scene(stage: Stage) -> None:
        engine = engine_of(stage.watch)
        before = stage.contents()
        for field, command in wrong_commands(kind):
            with pytest.raises(AllswellError) as caught:
                await carried_out(engine, command)
            assert not isinstance(caught.value, Bug), (field, command, caught.value)
            assert str(caught.value), field
        assert stage.contents() == before

    play(scene)


def test_one_command_out_of_bounds_spoils_no_other_of_its_batch() -> None:
    async def scene(stage: Stage) -> None:
        engine = engine_of(stage.watch)
        task = await stage.watch.submit("good")
        bad = [command for kind in KINDS for _, command in list(wrong_commands(kind))[:2]]
        answers = await engine.do_many([*bad, Cancel(CommandId("c"), task)])
        assert answers[-1] == task
        assert [one for one in answers[:-1] if not isinstance(one, AllswellError) or isinstance(one, Bug)] == []

    play(scene)


def events(server: Served) -> Any:
    return server.ok("GET", "/events?limit=1000")["events"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_over_http_commands_are_held_to_the_same(server: Served, kind: type[Command]) -> None:
    before = events(server)
    with contextlib.closing(server.connect()) as connection:
        for field, command in wrong_commands(kind):
            if field in SET_BY_THE_SERVER:
                continue
            try:
                about = msgspec.json.encode(command)
            except (ValueError, OverflowError):  # no JSON has it: it cannot come this way
                about = json.dumps(msgspec.to_builtins(command)).encode()
            sent = b'{"commands":[{"command":"%s","about":%s}]}' % (wire_name(kind).encode(), about)
            answer = server.say(connection, "POST", "/commands", raw=sent)
            assert answer.status < 500, (field, answer.body)
            problem = answer.json if answer.status != 200 else answer.json["answers"][0].get("error", {})
            assert problem.get("detail"), (field, command, answer.body)
            assert problem["kind"] != "bug", (field, command, problem)
    assert events(server) == before


def test_over_http_every_route_is_held_to_bounds(server: Served) -> None:
    """Whatever a route takes, with one field that nobody can mean, and in its path."""
    (task,) = server.ok("POST", "/tasks", {"tasks": [{"name": "bounds", "role": "build"}]})["task_ids"]
    (lease,) = server.ok("POST", "/claims", {"task_id": task, "agent_id": "ada"})["claims"]
    places = {"task": task, "token": str(lease["token"]), "run": "r_a", "question": "q_a.1", "id": task, "name": "x"}
    places |= {"receipt": "rc_a.1", "request": "m_a.x", "agent": "ada", "view": "view_task", "delivery": "d"}
    said: list[str] = []
    with contextlib.closing(server.connect()) as connection:
        for route in ROUTES:
            path = route.path.format(**places)
            for field, value in wrong_values(route.takes):
                if route.method == "POST":
                    body = json.dumps({**least(route.takes), field: value}).encode()
                    answer = server.say(connection, "POST", path, raw=body)
                elif isinstance(value, int):
                    answer = server.say(connection, "GET", f"{path}?{field}={value}")
                else:
                    answer = server.say(connection, "GET", f"{path}?{field}=a%00b")
                if answer.status >= 500 or b'"kind":"bug"' in answer.body:
                    said.append(f"{route.method} {path} {field}={str(value)[:40]}: {answer.body[:200]!r}")
            for place in places:
                odd = route.path.format(**{**places, place: "x%2f..%2f%00"})
                answer = server.say(connection, route.method, odd, raw=b"{}" if route.method == "POST" else None)
                if answer.status >= 500:
                    said.append(f"{route.method} {odd}: {answer.body[:200]!r}")
    assert said == []


def test_over_http_every_look_is_held_to_bounds(server: Served) -> None:
    """What `/views` takes goes to the store as it is: figures and texts that no store can hold are refused in words."""
    said: list[str] = []
    texts = ("a\0b", "\ud800")
    inside = [{name: figure} for name in ("limit", "after", "text") for figure in (-1, 1 << 63, 1 << 70, *texts)]
    with contextlib.closing(server.connect()) as connection:
        for name, look in CALLS.items():
            for field in look.arguments.__struct_fields__:
                for value in (-1, 1 << 63, 1 << 70, *texts, *inside, ["a\0b"]):
                    body = json.dumps({**least(look.arguments), "by": "all", field: value}).encode()
                    answer = server.say(connection, "POST", f"/views/{name}", raw=body)
                    wrong = answer.status >= 500 or (answer.status < 400 and field == "limit")
                    if wrong or (field == "which" and answer.status < 400 and "limit" in str(value)):
                        said.append(f"{name} {field}={str(value)[:40]}: {answer.status} {answer.body[:150]!r}")
    assert said == []


def least(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The least that a struct must have, as JSON."""
    made_up: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.required:
            text = str(field.type)
            made_up[field.encode_name] = [] if "list" in text or "tuple" in text else 1 if "int" in text else "x"
    return made_up


def test_over_mcp_every_tool_is_held_to_bounds(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("work")
        async with tables(stage, tmp_path).agent(key_of("ada", Right.AGENT, Right.SUBMITTER)) as agent:
            (lease,) = (await agent.do("claim"))["claims"]
            held = {"task": lease["task"]["task_id"], "token": lease["token"]}
            for name, tool in TOOLS.items():
                for field, value in wrong_values(tool.takes):
                    about = held if "task" in tool.input_schema["properties"] and name != "claim" else {}
                    arguments = {**least(tool.takes), **about, "wait_s": 0, field: value}
                    arguments = {key: one for key, one in arguments.items() if key in tool.input_schema["properties"]}
                    result = await agent.call(name, arguments)
                    assert result.is_error or name in LOOKS or (name, field) == ("submit", "key"), (name, field, value)
                    assert "bug" not in told(result).lower(), (name, field, told(result))
        row = await stage.watch.task(lease["task"]["task_id"])
        assert row is not None
        assert row.lease is not None, "none of it has ended the lease"

    play(scene)


def test_the_socket_of_an_attempt_is_held_to_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "echo $ALLSWELL_SECRET > secret; echo $ALLSWELL_SOCKET > socket.tmp; mv socket.tmp socket;"
        " while [ ! -e go ]; do sleep 0.02; done"
    )

    async def main() -> None:
        async with attempt_stage(tmp_path) as here:
            lease = await here.lease()
            attempt = AttemptRunner(here.order("sh", "-c", script), lease, here.home, on_evidence=here.seen.append)
            running = asyncio.ensure_future(attempt.run())
            await here.until((here.folder / "socket").exists)
            path = (here.folder / "socket").read_text().strip()
            secret = (here.folder / "secret").read_text().strip()
            for kind in agent_socket.AnyWord.__args__:
                for field, value in wrong_values(kind):
                    verb = kind.__struct_config__.tag
                    least_of = {"failure": {}, **least(kind)} if verb == "fail" else least(kind)
                    message = {**least_of, "verb": verb, "secret": secret, field: msgspec.to_builtins(value)}
                    reader, writer = await asyncio.open_unix_connection(path)
                    writer.write(json.dumps(message).encode() + b"\n")
                    reply = json.loads(await asyncio.wait_for(reader.readline(), 60))
                    writer.close()
                    assert reply.get("error"), (verb, field, str(value)[:50], reply)
                    assert reply["error"] != "Bug", (verb, field, str(value)[:50], reply)
            row = await here.watch.task(lease.task)
            assert row is not None
            assert row.lease is not None
            (here.folder / "go").touch()
            await running

    monkeypatch.setattr(launch, "_outsiders", True)
    asyncio.run(main())


def test_at_its_socket_an_agent_brings_json_that_every_reader_can_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a number without end passed, on which `allswell show` and the page failed."""
    script = "echo $ALLSWELL_SECRET > secret; echo $ALLSWELL_SOCKET > s.tmp; mv s.tmp socket; read line < go"

    async def main() -> None:
        async with attempt_stage(tmp_path) as here:
            lease = await here.lease()
            (here.folder / "go").unlink(missing_ok=True)
            attempt = AttemptRunner(here.order("sh", "-c", f"mkfifo go; {script}"), lease, here.home)
            running = asyncio.ensure_future(attempt.run())
            await here.until((here.folder / "socket").exists)
            path = (here.folder / "socket").read_text().strip()
            secret = (here.folder / "secret").read_text().strip()
            for raw in (b"1e400", b"9" * 5_000, b"[" * 201 + b"]" * 201, b'"\xff"', b"[" * 100_000):
                reader, writer = await asyncio.open_unix_connection(path)
                writer.write(b'{"verb":"done","secret":"%s","result":%s}\n' % (secret.encode(), raw))
                reply = json.loads(await asyncio.wait_for(reader.readline(), 60))
                writer.close()
                assert reply.get("error") == "Refused", (raw[:20], reply)
            row = await here.watch.task(lease.task)
            assert row is not None
            assert row.lease is not None
            await asyncio.to_thread((here.folder / "go").write_text, "\n")
            await running

    monkeypatch.setattr(launch, "_outsiders", True)
    asyncio.run(main())


def test_every_field_has_a_bound() -> None:
    """A command that is added says what each of its fields may hold, or importing fails."""

    class Unbounded(Command, frozen=True, gc=False):
        text: str

    with pytest.raises(Bug, match=r"Unbounded\.text has no bound"):
        check(Unbounded(text="x"))


def test_an_id_that_an_earlier_version_took_can_be_read_and_called_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """New ids are of few letters, since files are named after them; what is there already stays within reach."""
    old = TaskId("t_a/../b")

    async def scene(stage: Stage) -> None:
        engine = engine_of(stage.watch)
        with monkeypatch.context() as earlier:
            earlier.setattr(submit, "_TASK_ID", re.compile(".*"))
            await engine.do(Submit(CommandId("s"), (NewTask(old, "old"),)))
        with pytest.raises(Refused, match="a task's id starts with 't_'"):
            await engine.do(Submit(CommandId("s"), (NewTask(TaskId("t_a/../c"), "new"),)))
        row = await stage.watch.task(old)
        assert row is not None
        with pytest.raises(Refused, match="no file can be named after"):
            file_name(row.task.id)
        await stage.watch.cancel(old)

    play(scene)


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "a/b", "/a", "a\\b\n", "-o", "", "a b", "a\0"])
def test_no_path_is_made_of_such_an_id(name: str, tmp_path: Path) -> None:
    from allswell.runtime.attempt.record import note_name
    from allswell.runtime.receipts import Receipts
    from allswell.runtime.workspace.folder_snapshot import place_of

    for make in (file_name, lambda id_: note_name(id_, 1), lambda id_: place_of(tmp_path, id_, 1)):
        with pytest.raises(Refused):
            make(name)
    assert Receipts(tmp_path).find(f"rc_{name}/../x") is None
