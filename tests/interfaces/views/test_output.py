"""Everything that `--json` prints has a schema and keeps the rules: every command is typed, for each kind of answer."""

import gc
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct, field

import allswell
from allswell.domain.agents.status import Presence, Survivor, Survivors, word_of
from allswell.domain.ids import Millis
from allswell.domain.rules.event import KINDS
from allswell.errors import BreakerOpen, Bug, Refused, ServiceParked, TimeUp, Unavailable
from allswell.interfaces.cli import app, schema
from allswell.interfaces.cli.options import parameters
from allswell.interfaces.cli.schema import ALONE, ANSWERS
from allswell.store.trusted import trust_folder
from allswell.timing.moment import Moment, from_json, moment, to_json
from allswell.views.fields import ErrorShape, as_shape, outside
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.flow_scene import repository
from tests.interfaces.cli.scene import told
from tests.interfaces.views.outside import BARE, MOMENT, check, document, misnamed, shapes_of
from tests.support.fakes import AlertReceiver, NotionServer

ELSEWHERE = {
    ("audit-agent", "Said"),  # tests/interfaces/cli/test_members.py, with the next: they take part in a build
    ("build-agent", "Said"),
    ("coordinate", "Build"),  # tests/interfaces/cli/test_coordinate.py, with the next: there is a chat
    ("coordinate", "Said"),
    ("serve", "Said"),  # tests/interfaces/http/test_security.py: it runs until it is told to stop
    ("show", "Requested"),  # tests/interfaces/cli/test_mesh.py: inside a supervised attempt
    ("sinks run", "Said"),  # tests/interfaces/cli/test_sinks.py: it runs until it is told to stop
    ("unpark", "Unparked"),  # tests/interfaces/cli/test_mending.py: an account must be parked
    ("work", "Joined"),  # tests/interfaces/cli/test_flow.py: two processes at one flow
    ("worker", "Said"),  # tests/interfaces/cli/test_worker.py, with the next two: they need a PostgreSQL
    ("worker setup", "WorkerSetup"),
    ("worker status", "Queues"),
}
FLOW = """\
name: build
timeouts: {step: 2s, flow: 2s}
steps:
- {id: quick, run: [sh, -c, "echo made > made.txt"], outputs: [made.txt]}
- {id: slow, needs: quick, run: [sh, -c, "echo changed > kept.txt; test -e go || sleep 60"]}
"""
FLEET = """\
[agents.painter]
command = ["sh", "-c", "exit 3", "{prompt}"]
role = "painter"
worktree = true
"""
SINKS = """\
[sinks.people]
kind = "alerts"
routes = {{ warning = "{route}" }}
[sinks.programs]
kind = "webhook"
url = "https://hooks.invalid/"
secret_env = "NOT_SET"
"""
LOG = """\
[sinks.log]
kind = "notion"
token_env = "TOKEN"
url = "{url}"
page = "{page}"
"""


class Typist:
    """Types commands with `--json`, and holds each answer to its schema."""

    def __init__(self, cli: Console) -> None:
        self.cli = cli
        self.seen: dict[str, set[str]] = defaultdict(set)

    def __call__(self, *words: str, code: int | None = 0, stdin: str = "") -> Any:  # noqa: ANN401 - whatever it is
        """The answer; of a stream, its last line. Without a `code`, any will do."""
        split = words.index("--") if "--" in words else len(words)
        said = self.cli(*words[:split], "--json", *words[split:], stdin=stdin)
        assert code in (None, said.code), (words, said)
        command = " ".join(words[:2]) if " ".join(words[:2]) in ANSWERS else words[0] if words else ALONE
        command = ALONE if command.startswith("-") else command
        lines = said.out.splitlines()
        assert lines, words
        assert len(lines) == 1 or ANSWERS[command].lines, said.out
        self.seen[command] |= {check(command, line) for line in lines}
        return json.loads(lines[-1])


@pytest.fixture
def typist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Typist]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    trust_folder(tmp_path)
    folder = tmp_path / "repository"
    folder.mkdir()
    repository(folder)
    (folder / ".gitignore").write_text(".allswell\n")
    yield Typist(Console(folder, monkeypatch))
    gc.unfreeze()  # `run` freezes what was imported, which others in this process may look for


def without_a_store(typed: Typist) -> None:
    assert typed()["there"] is False
    assert typed("--version").keys() == {"version"}
    assert typed("tasks", "--store", "sqlite:///nowhere.db", code=75)["error"]["kind"] == "unavailable"
    typed("doctor")
    typed("completion", "bash")
    typed("config")
    assert typed("trust", "--list")["paths"]
    assert len(typed("config", "retry.backoff")["settings"]) == 1
    assert typed("drill", "--hours", "0.02")["well"]
    assert typed("init", "--dry-run", "--agent", "claude")["agents"] == ["claude"]
    typed("check")
    assert typed("init", "claude")["client"] == "claude"
    assert typed("init", "claude", "--undo")["client"] == "claude"


def an_agents_day(typed: Typist) -> None:
    assert typed("submit", "fetch", "--run", "night", "--run-timeout", "8h")["runs"][0]["opened"]
    lines = '{"name": "a"}\n{"name": "b", "needs": ["a"], "run_id": "night"}\n{"name": "c", "run": "night"}\n'
    assert typed("submit", "-", stdin=lines)["submitted"] == 3
    assert typed("claim", "--agent", "ada", "--role", "none", code=5) == {"task": None}
    first = typed("claim", "--agent", "ada", "--lease", "10m")
    held = ("--task", first["task"]["task_id"], "--token", "1", "--agent", "ada")
    assert typed("checkin", "half of it", "--progress", "0.5", *held)["deadline"] == first["deadline"]
    asked = typed("ask", "May I?", "-o", "yes=Go", "--hold", *held)["question_id"]
    typed("answer", asked, "yes", "with care")
    made = typed("request", "critic", "is it good?", "--no-wait", *held)
    assert typed("show", made["request_id"])["task"]["role"] == "critic"
    typed("request", "critic", "at once", "--timeout", "1ms", *held, code=1)
    assert typed("inbox", "--agent", "eve", code=5) == {"requests": []}
    asked = typed("request", "eve", "is it good?", "--kind", "handoff", "--no-wait", *held)["request_id"]
    assert typed("inbox", "--agent", "eve")["requests"][0]["request_id"] == asked
    assert typed("respond", asked, "yes", "--agent", "eve") == {"request_id": asked}
    asked = typed("request", "eve", "and this?", "--kind", "handoff", "--no-wait", *held)["request_id"]
    assert typed("decline", asked, "no time", "--agent", "eve") == {"request_id": asked}
    assert typed("release", "not mine", *held)["said"] == "release"
    assert typed("done", *held, code=4)["error"]["kind"] == "lease_lost"
    two = typed("claim", "--agent", "bob", "--count", "2")["claims"]
    assert two[0]["handover"]["agent_id"] == "ada"
    for claim, words in zip(two, (("done", '{"pages": 12}'), ("fail", "no", "--class", "auth")), strict=True):
        typed(*words, "--task", claim["task"]["task_id"], "--token", str(claim["token"]), "--agent", "bob")
    typed("submit", "proved", "--verify", "test -e there", "--role", "prover")
    proved = typed("claim", "--agent", "bob", "--role", "prover")
    held = ("--task", proved["task"]["task_id"], "--token", "1", "--agent", "bob")
    for number in (1, 2, 3):
        assert typed("done", *held, code=3 if number == 3 else 1)["failed"] == number
    assert typed("verify", "proved", code=1)["verification"]["why"] == "exit code 1"
    typed("cancel", "c")
    assert typed("dismiss", "c")["dismissed_by"]
    assert typed("retry", "c")["retried"][0]["new_task_id"]
    typed("cancel", "night")
    assert typed("key", "create", "ada", "--right", "agent", "--role", "critic")["secret"].startswith("awk_ada_")
    assert typed("key", "list")["keys"][0]["state"] == "valid"
    assert typed("key", "revoke", "ada")["state"] == "revoked"
    typed("key", "create", "mia", "--right", "viewer")
    assert "revoked_at" in typed("key", "revoke-links")
    session = ("--client", "claude", "--id", "7f99863e", "--pid", str(os.getpid()))
    assert typed("session", "waits", *session, "--kind", "permission_prompt")["waits"]
    assert "/enter?link=awl_" in typed("key", "link", "mia", "--at", "https://watch.example.org")["url"]


def looking(typed: Typist) -> None:
    typed(code=None)
    tasks = typed("tasks", "--all")["tasks"]
    for task in tasks:
        typed("show", task["task_id"])
        typed("why", task["task_id"])
    for run in typed("runs")["runs"]:
        typed("show", run["run_id"])
        typed("why", run["run_id"])
    for question in typed("questions", "--all")["questions"]:
        typed("show", question["question_id"])
        typed("why", question["question_id"])
    for words in (("agents",), ("tracking",), ("watch", "--once"), ("events", "-n", "1000")):
        typed(*words)
    typed("doctor", code=None)


def commands_and_fleets(typed: Typist, folder: Path) -> None:
    us = f"{sys.executable} -m allswell"
    script = (
        f"echo more >> kept.txt; {us} checkin half --json > in.json; {us} fail no --json > fail.json; echo no; exit 7"
    )
    ran = typed("run", "--name", "paint", "--", "sh", "-c", script, code=7)
    assert (ran["exit_code"], ran["exit"], ran["attempts"]) == (7, 7, 1)
    task, receipt = ran["task_id"], ran["receipt_id"]
    assert typed("show", receipt)["receipt"]["path"] == ran["receipt_path"]
    typed("receipts")
    assert len(typed("diff", task)["changed"]) == 3
    assert typed("logs", task)["text"] == "no"
    for verb, file in (("checkin", "in.json"), ("fail", "fail.json")):  # through the attempt's socket
        assert check(verb, (folder / file).read_text()) in shapes_of(verb)
    typed("recover", task)
    assert typed("recover", task, "--into", str(folder.parent / "rescued"))["recovery"]["written"]
    (folder / "allswell.toml").write_text(FLEET)
    typed("submit", "paint the wall", "--role", "painter", "--retries", "0")
    typed("up", "--drain")
    typed("submit", "sweep the floor", "--role", "shell")
    typed("work", "--agent", "sh", "--role", "shell", "--drain", "--", "true")
    typed("agents")
    assert typed("agents", "--ledger", "sh")["agent_id"] == "sh"


def sinks(typed: Typist, folder: Path) -> None:
    with AlertReceiver() as receiver:
        (folder / "allswell.toml").write_text(SINKS.format(route=receiver.route()))
        assert typed("alerts", "test")["routes"][0]["delivered"]
    assert typed("sinks", "check", code=1)["sinks"][1]["fits"] is False
    assert [one["sink"] for one in typed("sinks")["sinks"]] == ["people", "programs"]
    with NotionServer(rate=50) as notion:
        (folder / "allswell.toml").write_text(LOG.format(url=notion.url, page=notion.page))
        typed.cli.patch.setenv("TOKEN", notion.token)
        assert typed("sinks", "setup", "log")["made"]
    with allswell.open(f"sqlite:///{typed.cli.database}") as watch:
        watch.swap("sink.gone", None, "somebody told it, once")
    assert typed("sinks", "forget", "gone")["sink"] == "gone"
    assert typed("comms")["status"] in ("Sent", "Timeout", "Received", "Resolved")
    assert typed("deliveries")["deliveries"] == []
    assert typed("deliveries", "retry")["did"] == "retried"
    assert typed("deliveries", "drop", "--all")["did"] == "dropped"
    (folder / "allswell.toml").unlink()


def left_behind(typed: Typist) -> None:
    """A supervisor of a machine that is gone, and a process that has survived its attempt there."""
    supervisor = Presence("night", "m", "ship", 1, "boot", "pids", 1, Millis(1), Millis(1))
    survivors = Survivors("sh", "t_1", "sweep", 1, "ship", "boot", "pids", (Survivor(7, 1, "sleep 600"),), "/there")
    with allswell.open(f"sqlite:///{typed.cli.database}") as watch:
        watch.swap("supervisor.night", None, msgspec.json.encode(supervisor).decode())
        watch.swap(word_of("sh"), None, msgspec.json.encode(survivors).decode())
    assert typed("dismiss", "supervisor.night")["supervisor"] == "night"
    assert typed("dismiss", "7")["processes"] == [{"pid": 7, "command": "sleep 600"}]


def a_flow(typed: Typist, folder: Path) -> None:
    (folder / "flow.yaml").write_text(FLOW)
    assert typed("check", "flow.yaml")["errors"] == 0
    assert [step["step_id"] for step in typed("graph", "flow.yaml")["steps"]] == ["quick", "slow"]
    typed("graph", "flow.yaml", "--svg", "flow.svg")
    run = typed("run", "flow.yaml", code=124)["run_id"]
    shown = typed("show", run)
    assert [one["status"] for one in shown["flow"]["receipts"]] == ["done", "timeout"]
    assert shown["flow"]["timeouts"][0]["run_id"] == run
    (step,) = typed("resume", run, code=3)["steps"]
    assert (step["step_id"], step["changes"]) == ("slow", ["kept.txt"])
    (folder / "go").touch()
    assert typed("resume", run, "--choose", "retry_step")["verdict"] == "done"


def errors(typed: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    assert typed("show", "nothing", code=2)["error"]["code"] == "unknown_task"
    for words in (("show",), ("tasks", "--limit", "x"), ("tasks", "--bogus"), ("nonsense",)):
        told = typed(*words, code=2)["error"] if words != ("nonsense",) else None
        assert told is None or (told["code"], told["hint"][:9]) == ("usage", "`allswell")
    assert typed("check", "x" * 5_000, code=2)["error"]["kind"] == "refused"

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a wheel came off")

    with monkeypatch.context() as patch:
        patch.setattr("allswell.views.status.load_status", broken)
        told = typed(code=1)["error"]
    assert (told["kind"], told["code"]) == ("bug", "bug")
    assert told["message"] == "this is a bug of Allswell's: RuntimeError: a wheel came off"


def test_every_answer_of_every_command_keeps_its_schema(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = typist.cli.folder
    without_a_store(typist)
    an_agents_day(typist)
    looking(typist)
    commands_and_fleets(typist, folder)
    a_flow(typist, folder)
    sinks(typist, folder)
    left_behind(typist)
    looking(typist)
    errors(typist, monkeypatch)
    expected = {(command, shape) for command in ANSWERS for shape in shapes_of(command) if shape != "Error"}
    seen = {(command, shape) for command, shapes in typist.seen.items() for shape in shapes if shape != "Error"}
    assert expected - seen == ELSEWHERE


def test_a_store_with_all_kinds_of_trouble_is_told_by_the_rules(typist: Typist) -> None:
    typist.cli.database.parent.mkdir()
    told(typist.cli.database)
    looking(typist)


@pytest.mark.parametrize(
    "error, kind, more",
    [
        (Refused("bad", "no", where="x", hint="do y"), "refused", {"code": "bad", "where": "x", "hint": "do y"}),
        (TimeUp("t_1", 3, "late"), "lease_lost", {"task_id": "t_1", "token": 3}),
        (Unavailable("away", hint="wait"), "unavailable", {"message": "away", "hint": "wait"}),
        (ServiceParked("api", 9, 5_000), "service_parked", {"service": "api", "retry_after_ms": 5_000}),
        (BreakerOpen("api", None, "why"), "breaker_open", {"service": "api"}),
        (Bug("a rule was broken"), "bug", {"message": "this is a bug of Allswell's: a rule was broken"}),
        (KeyError("x"), "bug", {"code": "bug"}),
    ],
)
def test_every_kind_of_error_has_the_one_shape(error: Exception, kind: str, more: dict[str, object]) -> None:
    line = msgspec.json.encode(ErrorShape.of(error)).decode()
    assert check("tasks", line) == "Error"
    assert {"kind": kind, **more}.items() <= json.loads(line)["error"].items()


class Part(Struct):
    at: int
    why: str = ""


class Whole(Struct):
    id: str
    parts: tuple[Part, ...]


class PartShape(Struct):
    at: Moment = field(name="begun_at")
    why: str


class WholeShape(Struct):
    whole_id: str
    parts: list[PartShape]


def test_a_shape_is_made_of_what_has_one_name_in_both() -> None:
    made = as_shape(Whole("w_1", (Part(5),)), WholeShape, whole_id="w_1")
    assert to_json(made) == b'{"whole_id":"w_1","parts":[{"begun_at":"1970-01-01T00:00:00.005Z","why":""}]}'
    assert from_json(to_json(made), WholeShape) == made
    with pytest.raises(AttributeError, match="whole_id"):
        as_shape(Whole("w_1", ()), WholeShape)


def test_moments_are_texts_to_the_millisecond() -> None:
    at = [0, 999, 1_000, 951_782_399_001, 4_102_444_800_000, -1]
    assert json.loads(to_json([moment(one) for one in at])) == [
        "1970-01-01T00:00:00.000Z",
        "1970-01-01T00:00:00.999Z",
        "1970-01-01T00:00:01.000Z",
        "2000-02-28T23:59:59.001Z",
        "2100-01-01T00:00:00.000Z",
        "1969-12-31T23:59:59.999Z",
    ]
    assert from_json(to_json([moment(one) for one in at]), list[Moment]) == at
    assert moment(None) is None
    with pytest.raises(msgspec.ValidationError, match="is no moment"):
        from_json(b'["1970-01-01"]', list[Moment])


# --- the catalogue ----------------------------------------------------------------------------------------------------


def test_every_command_with_json_has_a_schema() -> None:
    every = {
        name
        for name, command in app.commands().named.items()
        if any("--json" in one.declared.names for one in parameters(command.function))
    }
    assert set(ANSWERS) == every | {ALONE}
    assert set(document()["properties"]) == set(ANSWERS)


def test_every_shape_has_all_its_fields_and_a_name_of_its_own() -> None:
    """An answer's fields never depend on its values: only an error has some that come where they apply."""
    used = {shape for answer in ANSWERS.values() for shape in answer.shapes}
    for shape in used:
        info = msgspec.inspect.type_info(shape)
        assert isinstance(info, msgspec.inspect.StructType)
        assert all(field.required for field in info.fields), shape
    assert len({schema.name_of(shape) for shape in used}) == len(used)
    _, found = msgspec.json.schema_components([*used, ErrorShape])
    assert len(found) == len(document()["$defs"]), "two shapes have one name"


def test_every_field_of_an_event_has_a_telling_name() -> None:
    for kind, about in KINDS.items():
        stored = dict.fromkeys(about.fields, 1_770_000_000_000)
        told = outside(stored)
        assert len(told) == len(stored), kind
        assert not BARE & told.keys(), kind
        moments = {name for name, value in told.items() if MOMENT.fullmatch(str(value))}
        assert moments == {name for name in told if name == "deadline" or name.endswith("_at")}, kind


@pytest.mark.parametrize(
    "answer, wrong",
    [
        ({"id": "t_1"}, [".id"]),
        ({"task": "t_1", "run": {"run_id": "r_1"}}, [".task"]),
        ({"tasks": [{"created_at": 1_770_000_000_000}]}, [".tasks.created_at", ""][:1]),
        ({"ended_at": "2026-01-31T08:00:00Z"}, [".ended_at"]),
        ({"ended": "2026-01-31T08:00:00.000Z"}, [".ended"]),
        ({"left_ms": 1.5}, [".left_ms"]),
        ({"payload": {"id": 1}, "deadline": None, "ended_at": "2026-01-31T08:00:00.000Z", "left_ms": 5}, []),
    ],
)
def test_the_search_for_bad_names_finds_them(answer: dict[str, object], wrong: list[str]) -> None:
    assert misnamed(answer)[: len(wrong) or 1] == wrong
