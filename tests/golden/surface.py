"""What the world outside relies on, as text: a function for each file that is kept beside this module.

What has a generated page or schema is frozen by that already, since a test holds it to the code
(tests/tidy/test_generated_docs.py): events with their fields, settings with their defaults, error codes, exit codes,
states and moves (docs/states.md, docs/reference/*.md), flow files (flow.schema.json), the JSON of a run's files
(run-files.schema.json, tests/flows/run/test_files.py). Types of public names are in tests/tidy/public_api.txt.
Stores that earlier versions made are in tests/store/kept. Here is what they leave out, and what their own words would
hide: a page changes with every sentence, these files change only where something outside would notice.

No module and no class of ours appears in them, but for those whose names travel: commands, errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import msgspec
import psycopg
from msgspec import NODEFAULT, Raw
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

import allswell
from allswell.app import store_for
from allswell.build.state import AuditJob, BuildMemory
from allswell.domain.access.key import PREFIX as KEYS
from allswell.domain.access.key import SESSION_PREFIX as SESSIONS
from allswell.domain.access.key import Key, Sessions
from allswell.domain.agents.cost import Expense
from allswell.domain.agents.status import PRESENCE_PREFIX as SUPERVISORS
from allswell.domain.agents.status import SURVIVORS_PREFIX as SURVIVORS
from allswell.domain.agents.status import Presence, Survivors
from allswell.domain.build.component import BuildSpec
from allswell.domain.lease.audit import Audited
from allswell.domain.receipts.receipt import Receipt
from allswell.domain.receipts.step import Capture, StepChanges, StepReceipt, TimeoutRecord
from allswell.domain.rules.command import wire_name
from allswell.engine.lease import LastWord
from allswell.flows.run.folder import FlowEvent, RunRecord
from allswell.flows.run.plan import MemberJob
from allswell.interfaces.cli import app
from allswell.interfaces.cli.schema import ANSWERS as PRINTED
from allswell.interfaces.http.metrics import StoredTally
from allswell.interfaces.http.routing import openapi_document
from allswell.interfaces.http.server import PREFIX, ROUTES
from allswell.interfaces.mcp import server
from allswell.interfaces.mcp.tools import OWN_TOOLS, TOOLS
from allswell.remote.discovery import ServerNote
from allswell.remote.wire import ANSWERS, CALLS, COMMANDS, VERSION, Answering, CommandBatch
from allswell.runtime.agent_socket import AnyWord, SocketReply
from allswell.runtime.attempt.record import InFlightRecord
from allswell.runtime.workspace.baseline import Baseline
from allswell.runtime.workspace.folder_snapshot import Manifest
from allswell.store.trusted import TrustRecord
from tests.golden import planted
from tests.golden.outline import Outline
from tests.interfaces.cli.upkeep import run
from tests.interfaces.http.served import serving

HERE = Path(__file__).parent
WIDTH = 100
FLOW = """\
name: chain
steps:
- {id: first, run: [sh, -c, echo first | tee first.txt], outputs: {text: first.txt}}
- {id: slow, needs: first, run: [sh, -c, exec sleep 60], timeout_override: 1000, retry: 0}
"""


# --- what is declared -------------------------------------------------------------------------------------------------


def python() -> str:
    """What public names take, with the defaults that type checkers do not tell, and the members of enums."""
    lines: list[str] = []
    for name in allswell.__all__:
        kind = getattr(allswell, name)
        lines.append(f"{name}{_signature(kind)}")
        if isinstance(kind, type) and issubclass(kind, Enum):
            lines += [f"{name}.{member.name} = {member.value!r}" for member in kind]
        elif isinstance(kind, type):
            public = [one for one in dir(kind) if not one.startswith("_") and not hasattr(BaseException, one)]
            lines += [f"{name}.{one}{_signature(getattr(kind, one))}" for one in public]
    return _text(lines)


def _signature(kind: Any) -> str:  # noqa: ANN401 - whatever is public
    """Its parameters without their types; a default that is no plain value is `…`. What Python adds is left out."""
    if hasattr(kind, "__supertype__") or getattr(kind, "__init__", None) is Exception.__init__:
        return ""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ""
    try:
        given = inspect.signature(kind)
    except (TypeError, ValueError):
        return ""
    plain = [
        one.replace(annotation=one.empty, default=one.default if _is_plain(one.default) else ...)
        for one in given.parameters.values()
        if one.name != "self"
    ]
    return str(inspect.Signature(plain)).replace("Ellipsis", "…")


def _is_plain(default: object) -> bool:
    return (
        default is inspect.Parameter.empty
        or default is None
        or default == ()
        or type(default) in {bool, int, float, str}
    )


def help_pages() -> str:
    """`--help` of everything, as it is printed where there is no terminal."""
    pages = []
    environment = {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    with patch.dict(os.environ, environment):
        for typed in ("--help", "help all", "help topics", *(f"{name} --help" for name in app.commands().named)):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = app.run(typed.split())
            pages.append(f"$ allswell {typed}\n{out.getvalue()}(exit code {code})\n")
    return "\n".join(pages)


def http() -> str:
    """Every route of OpenAPI: its parameters, bodies and answers."""
    described, outline = openapi_document(ROUTES, PREFIX), Outline()
    shapes, lines = described["components"]["schemas"], []
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            name = f"{method.upper()} {path}"
            lines += ["", f"{name} = {route['operationId']}"]
            for one in route["parameters"]:
                needed = " (required)" if one.get("required") else ""
                kind, *inside = outline.of_schema("", one["schema"], shapes)
                default = f" = {json.dumps(one['schema']['default'])}" if "default" in one["schema"] else ""
                lines += [f"{one['in']} {one['name']}{kind}{needed}{default}"]
                lines += [f"{one['in']} {one['name']}{line}" for line in inside]
            bodies = [("takes", route.get("requestBody", {}))]
            bodies += [(f"answers {status}", answer) for status, answer in route["responses"].items()]
            for said, body in bodies:
                for media, content in body.get("content", {}).items():
                    kind, *inside = outline.of_schema(f"{name} {said}", content["schema"], shapes)
                    lines += [f"{said} {media}: {kind.partition(': ')[2]}"]
                    lines += [line.removeprefix(f"{name} ") for line in inside]
    return _text(lines)


def output() -> str:
    """What each command prints with `--json`."""
    outline, lines = Outline(), []
    for name, answer in PRINTED.items():
        lines += ["", *outline.of_types(name, *answer.shapes)]
        lines += ["one a line"] * answer.lines
    return _text(lines)


def mcp() -> str:
    """The tools of `allswell mcp`, of a server, and inside an attempt; what can be read."""
    outline, lines = Outline(), []
    for where, tools in (("", TOOLS), (" inside an attempt", OWN_TOOLS)):
        for name, tool in tools.items():
            hints = tool.hints
            marks = " read-only" * hints.reads_only + " repeatable" * hints.is_repeatable
            lines += ["", f"tool {name}{where}:{marks}"]
            lines += outline.of_schema(f"{name}{where} takes", tool.input_schema, {})
            lines += outline.of_schema(f"{name}{where} answers", tool.output_schema, {})
    lines += [
        "",
        *(f"resource {one.name}: {one.uri_template} {server.RESOURCE_MEDIA_TYPE}" for one in server.RESOURCE_TEMPLATES),
    ]
    return _text(lines)


def commands() -> str:
    """Commands as `/commands` and the notes of attempts have them, looks as `/views/NAME` has them, the socket."""
    outline, lines = Outline(), [f"version {VERSION}"]
    answers = {wire_name(kind): answer for kind, answer in ANSWERS.items()}
    for name, kind in COMMANDS.items():
        lines += ["", *outline.of_types(name, kind)]
        if name in answers:
            lines += outline.of_types(f"{name} answers", answers[name])
    for name, call in CALLS.items():
        lines += ["", *outline.of_types(f"view {name}", call.arguments)]
        lines += outline.of_types(f"view {name} answers", call.answer)
    lines += [
        "",
        *outline.of_types("POST /commands", CommandBatch),
        *outline.of_types("POST /commands answers", Answering),
    ]
    lines += ["", "kept in the note of an attempt: " + " ".join(sorted(wire_name(kind) for kind in get_args(LastWord)))]
    for word in sorted(get_args(AnyWord), key=lambda one: str(one.__struct_config__.tag)):
        lines += ["", *outline.of_types(f"socket {word.__struct_config__.tag}", _without_raw(word))]
    lines += ["", *outline.of_types("socket answers", _without_raw(SocketReply))]
    return _text(lines)


def stored() -> str:
    """The JSON inside stored files, in payloads that are ours, and in the words that a store keeps by key."""
    shapes: dict[str, object] = {
        "runs/RUN/run.json": RunRecord,
        "runs/RUN/FLOW/events.jsonl": FlowEvent,
        "runs/RUN/FLOW/timeouts.jsonl": TimeoutRecord,
        "runs/RUN/FLOW/receipts/STEP-AGENT-ATTEMPT.json": StepReceipt,
        "runs/RUN/FLOW/receipts/STEP-timeout.json": Capture,
        "runs/RUN/FLOW/changes/STEP-ATTEMPT.json": StepChanges,
        "receipts/RECEIPT.json": Receipt,
        "attempts/TASK.ATTEMPT.json": InFlightRecord,
        "baselines/TASK.ATTEMPT.json": Baseline,
        "snapshots/TASK/ATTEMPT/1/manifest.json": Manifest,
        "survivors/TASK.ATTEMPT.json": Survivors,
        "payload of a flow's step": MemberJob,
        "payload of an audit": AuditJob,
        "result of an audit": Audited,
        "the note of a server": ServerNote,
        "the record of trusted stores": TrustRecord,
        f"word {KEYS}NAME": Key,
        f"word {SESSIONS}NAME": Sessions,
        f"word {SUPERVISORS}NAME": Presence,
        f"word {SURVIVORS}HOLDER": Survivors,
        "word metrics.tally": StoredTally,
        "word build.RUN": BuildMemory,
        "word build.RUN.spec": BuildSpec,
    }
    outline, lines = Outline(), []
    for name, kind in shapes.items():
        lines += ["", *outline.of_types(name, kind)]
    return _text(lines)


def _without_raw(kind: Any) -> type[msgspec.Struct]:  # noqa: ANN401 - any Struct
    """The same Struct without defaults that are ready-made JSON, which cannot be said in a schema."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        default = msgspec.UNSET if isinstance(field.default, Raw) else field.default
        if default is NODEFAULT and field.default_factory is not NODEFAULT:
            default = msgspec.field(default_factory=field.default_factory)
        annotated = field.type | msgspec.UnsetType if default is msgspec.UNSET else field.type
        fields.append(
            (field.encode_name, annotated) if default is NODEFAULT else (field.encode_name, annotated, default)
        )
    config = kind.__struct_config__
    return msgspec.defstruct(
        kind.__name__,
        fields,
        kw_only=True,
        tag=config.tag,
        tag_field=config.tag_field,
        forbid_unknown_fields=config.forbid_unknown_fields,
    )


# --- what is made -----------------------------------------------------------------------------------------------------


def sqlite_tables(folder: Path) -> str:
    """Tables, columns and indexes of a new SQLite store."""
    database = folder / "new.db"
    asyncio.run(_open(f"sqlite:///{database}"))
    with contextlib.closing(sqlite3.connect(database)) as raw:
        lines: list[str] = []
        for kind, name in raw.execute(
            "SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2"
        ):
            lines += ["", f"{kind} {name}"]
            if kind == "table":
                columns = raw.execute("SELECT name, type, [notnull], dflt_value, pk FROM pragma_table_info(?)", (name,))
            else:
                columns = raw.execute("SELECT name, '', 0, NULL, 0 FROM pragma_index_info(?)", (name,))
            for column, type_, needed, default, key in columns:
                notes = (
                    " NOT NULL" * needed
                    + (f" DEFAULT {default}" if default is not None else "")
                    + f" KEY {key}" * bool(key)
                )
                lines.append(f"  {column} {type_}{notes}".rstrip())
    return _text(lines)


_COLUMNS = """
SELECT table_schema || '.' || table_name, column_name, data_type, is_nullable, column_default
FROM information_schema.columns WHERE table_schema IN ('allswell', 'allswell_worker') ORDER BY 1, ordinal_position
"""
_INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname IN ('allswell', 'allswell_worker') ORDER BY 1"
_FUNCTIONS = """
SELECT n.nspname || '.' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname IN ('allswell', 'allswell_worker') ORDER BY 1
"""


def postgres_tables(url: str) -> str:
    """The same of a new store on PostgreSQL, and the worker's tables."""
    asyncio.run(_open(url))
    (workers,) = (Path(allswell.__file__).parent).rglob("tables.sql")
    with psycopg.connect(url) as raw:
        raw.execute(workers.read_bytes())
        lines: list[str] = []
        table = ""
        for name, column, type_, nullable, default in raw.execute(_COLUMNS):
            if name != table:
                lines += ["", f"table {name}"]
                table = name
            notes = " NOT NULL" * (nullable == "NO") + (f" DEFAULT {default}" if default is not None else "")
            lines.append(f"  {column} {type_}{notes}")
        lines += ["", *(str(one) for (one,) in raw.execute(_INDEXES.encode()))]
        lines += ["", *(f"function {one}" for (one,) in raw.execute(_FUNCTIONS.encode()))]
        raw.execute("DROP SCHEMA allswell_worker CASCADE")
    return _text(lines)


async def _open(url: str) -> None:
    async with allswell.make_watch(store_for(url), sweeping=False):
        pass


_NAMES = (
    (re.compile(r"\b([a-z]{1,2})_[0-9a-z]{16}\b"), r"\1_ID"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "SHA256"),
    (re.compile(r"(?<=/files/).*"), "…"),
)


def files(folder: Path) -> str:
    """Names of what a flow leaves that ran out of time, and of what a command leaves that failed."""
    (folder / "flow.yaml").write_text(FLOW)
    flow = run("run", "flow.yaml", cwd=folder)
    assert flow.code == 3, flow  # it asks
    command = run("run", "--", "sh", "-c", "echo begun; echo wrong >&2; touch made; exit 3", cwd=folder)
    assert command.code == 3, command
    names = set()
    for path in (folder / ".allswell").rglob("*"):
        if path.is_file():
            name = str(path.relative_to(folder / ".allswell"))
            for pattern, instead in _NAMES:
                name = pattern.sub(instead, name)
            names.add(name)
    return _text(sorted(names))


def metrics(folder: Path) -> str:
    """What `/metrics` tells, with its labels."""

    async def fill(url: str) -> None:
        async with allswell.make_watch(store_for(url), sweeping=False) as watch:
            await watch.submit("costs", role="writer")
            lease = await watch.claim(agent="ada")
            assert lease is not None
            await lease.spend(Expense(1, 1, 1))
            await watch.park("printer", 60_000)

    store = f"sqlite:///{folder}/.allswell/allswell.db"
    (folder / ".allswell").mkdir()
    asyncio.run(fill(store))
    with serving(folder, store=store) as served:
        families: list[Metric] = []
        while not any(one.name == "allswell_attempts" for one in families):  # until the journal is read
            answer = served.call("GET", "/metrics", key="viewer")
            families = list(text_string_to_metric_families(answer.body.decode()))
    families.sort(key=lambda family: family.name)
    labels = [sorted({label for one in family.samples for label in one.labels}) for family in families]
    return _text(f"{one.name} {one.type} {{{', '.join(names)}}}" for one, names in zip(families, labels, strict=True))


def _text(lines: Sequence[str] | Iterator[str]) -> str:
    return "\n".join(lines).strip() + "\n"


DECLARED: dict[str, Callable[[], str]] = {
    "python": python,
    "help": help_pages,
    "http": http,
    "output": output,
    "mcp": mcp,
    "commands": commands,
    "stored": stored,
    "planted": planted.text,
}
"""What needs nothing but the code."""
MADE: dict[str, Callable[[Path], str]] = {"sqlite": sqlite_tables, "files": files, "metrics": metrics}
"""What is looked up in a folder, which must be empty."""
