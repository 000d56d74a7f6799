"""Writes the pages under docs/ that follow from tables in the code, so that they cannot contradict it: `make docs`.

`states.md` is drawn from the tables of moves, `reference/events.md` from the catalogue of events, `reference/errors.md`
from the error classes and from every `Refused(...)` in the source, `reference/settings.md` from the catalogue of
settings, `reference/commands.md` from the signatures of the commands, `flow.schema.json` from what the loader
of flows takes, `reference/output.md` and `output.schema.json` from the shapes that `--json` prints,
`reference/python.md` from the public names. A test fails when a page is out of date.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import allswell
from allswell import errors, settings, views
from allswell.domain.rules.event import KINDS
from allswell.domain.service import breaker
from allswell.domain.task import model
from allswell.domain.task.model import ENDS, MOVES, State
from allswell.flows.schema import schema as flow_schema
from allswell.interfaces.cli import app, context
from allswell.interfaces.cli.options import Parameter, parameters
from allswell.interfaces.cli.parser import usage
from allswell.interfaces.cli.registry import GROUPS, CliCommand
from allswell.interfaces.cli.schema import ANSWERS, name_of, schema_of
from allswell.settings import SETTINGS
from allswell.settings.schema import ROLES
from allswell.views import fields as error_shape
from allswell.views.fields import name_outside

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src" / "allswell"
NOTE = "<!-- Written by docs/generate.py; change the tables in the code and run `make docs`. -->\n"


def pages() -> dict[Path, str]:
    """Every generated page with its text."""
    made = {
        "states.md": states(),
        "reference/events.md": events(),
        "reference/errors.md": all_errors(),
        "reference/settings.md": all_settings(),
        "reference/commands.md": all_commands(),
        "reference/output.md": output(),
        "reference/python.md": python_api(),
    }
    flow = json.dumps(flow_schema(), indent=2, ensure_ascii=False) + "\n"
    schemas = {SOURCE / "flows" / "flow.schema.json": flow, DOCS / "reference" / "flow.schema.json": flow}
    printed = schema_of({name: answer.shapes for name, answer in ANSWERS.items()})
    schemas[DOCS / "reference" / "output.schema.json"] = json.dumps(printed, indent=2, ensure_ascii=False) + "\n"
    return {DOCS / name: NOTE + text for name, text in made.items()} | schemas


# --- states -----------------------------------------------------------------------------------------------------------


def states() -> str:
    """The diagram of moves, and a sentence for each state."""
    lines = ["# Where a task can stand", ""]
    lines += ["Drawn from the table `MOVES` in `domain/task/model.py`, to which every decision is held.", ""]
    lines += ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {first}" for first in (State.READY, State.DELAYED, State.WAITING, State.SKIPPED)]
    for old, moves in MOVES.items():
        lines += [f"    {old} --> {new}" for new in moves]
    lines += [f"    {end} --> [*]" for end in ENDS]
    lines += ["```", "", "| state | what it means | can become |", "|---|---|---|"]
    said = sentences(model, "State")
    for state in State:
        following = ", ".join(MOVES[state]) or "(it has ended)"
        lines.append(f"| `{state}` | {said[state.name]} | {following} |")
    return "\n".join([*lines, "", *breakers()]) + "\n"


def breakers() -> list[str]:
    """The diagram of a service's breaker, and a sentence for each of its stands."""
    lines = ["# Where the breaker of a service can stand", ""]
    lines += [
        "Drawn from the table `MOVES` in `domain/service/breaker.py`, to which every step of its model is held.",
        "",
    ]
    lines += ["```mermaid", "stateDiagram-v2", f"    [*] --> {breaker.BreakerState.CLOSED}"]
    lines += [f"    {old} --> {new}: {cause}" for (old, cause), new in breaker.MOVES.items()]
    lines += ["```", "", "| stand | what it means |", "|---|---|"]
    said = sentences(breaker, "BreakerState")
    return lines + [f"| `{stand}` | {said[stand.name]} |" for stand in breaker.BreakerState]


def sentences(module: object, name: str) -> dict[str, str]:
    """The sentence that stands below each member of an enum."""
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    found = {}
    for member, below in pairwise(body):
        if (
            isinstance(member, ast.Assign)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(member.targets[0], ast.Name)
        ):
            found[member.targets[0].id] = str(below.value.value)
    return found


# --- events -----------------------------------------------------------------------------------------------------------


def events() -> str:
    """The catalogue of events."""
    lines = ["# Events", ""]
    lines += [
        "Every event carries its `kind`, the moment it was committed (`occurred_at`), its `position`, and, where they",
        "apply, `task_id`, `run_id`, `agent_id` and the `token` of the lease. The fields below are what its `data`",
        "holds besides. The names are those of the documents Allswell comes from. In Python an `Event` has `task`,",
        "`run` and `agent`, and its `data` is as it is stored: moments are milliseconds there, and a name in brackets",
        "is the stored one.",
        "",
        "| kind | fields | what it means |",
        "|---|---|---|",
    ]
    for name, kind in KINDS.items():
        fields = ", ".join(map(event_field, kind.fields))
        lines.append(f"| `{name}` | {fields} | {kind.meaning} |")
    return "\n".join(lines) + "\n"


def event_field(stored: str) -> str:
    """A field of an event as it is told outside, and as it is stored where that is another name."""
    name = name_outside(stored)
    return f"`{name}`" if name == stored else f"`{name}` (`{stored}`)"


# --- errors -----------------------------------------------------------------------------------------------------------


def all_errors() -> str:
    """The error classes, and every reason for which a caller can be refused."""
    lines = ["# Errors", "", *paragraphs(errors.__doc__), ""]
    for name, error in vars(errors).items():
        if inspect.isclass(error) and error.__module__ == errors.__name__:
            lines += [f"## `{name}`", "", *paragraphs(error.__doc__), ""]
    lines += ["## Codes of `Refused`", ""]
    lines += ["`code` is stable. In the messages, `{…}` stands for what the caller gave or what was found.", ""]
    lines += ["| code | message | `where` |", "|---|---|---|"]
    for code, message, where in sorted(set(refusals())):
        lines.append(f"| `{code}` | {message.replace('|', '&#124;')} | {where} |")
    return "\n".join(lines) + "\n"


def paragraphs(text: str | None) -> list[str]:
    """A docstring's lines; those that are set as a table keep their shape."""
    lines = inspect.cleandoc(text or "").splitlines()
    return [f"- {line}" if line.startswith("`") and "  " in line else line for line in lines]


def refusals() -> Iterator[tuple[str, str, str]]:
    """Every `Refused(code, message, where=…)` in the source."""
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text()
        if not any(name in source for name in REFUSING):
            continue
        for scope in ast.walk(ast.parse(source)):
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = list(ast.walk(scope))
                calls = [one for one in inside if isinstance(one, ast.Call) and ast.unparse(one.func) in REFUSING]
                known = texts(inside) if calls else {}
                for call in calls:
                    yield from refusal(call, known)


REFUSING = ("Refused", "allswell.Refused", "super().__init__")  # the last: a kind of refusal with a class of its own


def refusal(call: ast.Call, known: Mapping[str, ast.expr]) -> Iterator[tuple[str, str, str]]:
    """One refusal, unless its code is handed through."""
    if len(call.args) < 2:
        return
    code, message = call.args[:2]
    where = [template(keyword.value, known) for keyword in call.keywords if keyword.arg == "where"]
    if isinstance(code, ast.Constant):
        yield str(code.value), template(message, known), "".join(f"`{one}`" for one in where)


def texts(inside: Iterable[ast.AST]) -> dict[str, ast.expr]:
    """What the names in a function were last set to, for messages that are built before they are raised."""
    return {
        node.targets[0].id: node.value
        for node in inside
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def template(node: ast.expr, known: Mapping[str, ast.expr]) -> str:
    """A message as its reader may meet it, with `{…}` for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part, known) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left, known) + template(node.right, known)
    if isinstance(node, ast.Name) and isinstance(known.get(node.id), ast.Constant | ast.JoinedStr):
        return template(known[node.id], known)
    return "{…}"


# --- settings ---------------------------------------------------------------------------------------------------------

TABLES = {
    "": "The watch",
    "timeouts": "`[timeouts]`: how long a scope may take that does not say so",
    "hard_limits": "`[hard_limits]`: how long a scope may say that it takes",
    "retry": "`[retry]`: what follows a failure",
    "breaker": "`[breaker]`: when a service is left alone",
    "worker": "`[worker]`: how messages are handled (bare numbers are seconds, except for statements)",
    "pace": "`[pace]`: how patient the engine is",
    "fleet": "`[fleet]`: how a supervisor holds its tasks",
    "build": "`[build]`: what a build may take ([builds.md](../builds.md))",
    "requests": "`[requests]`: how patiently agents ask each other ([mesh.md](../mesh.md))",
    "quota": "`[quota]`: what one attempt may put into the store",
    "mesh": "`[mesh]`: requests between agents",
    "doctor": "`[doctor]`: where `allswell doctor` draws the line",
}


def all_settings() -> str:
    """The catalogue of settings, table by table."""
    lines = ["# Settings", "", *paragraphs(settings.__doc__), ""]
    lines += [
        'Lengths of time are milliseconds, or text such as `"15m"`, `"1h 30m"`, `"400ms"`. `allswell config` shows'
    ]
    lines += [
        "what holds here and where it comes from; `allswell config --schema` prints a JSON Schema for editors.",
        "",
    ]
    lines += ["```toml", "# allswell.toml; in pyproject.toml the same stands below [tool.allswell]"]
    lines += ['agent_timeout = "20m"', "", "[retry]", 'backoff = "2s"', "", "[roles.critic]", 'agent_timeout = "10m"']
    lines += ["```", ""]
    for table, title in TABLES.items():
        lines += [f"## {title}", "", "| setting | default | environment | what it is for |", "|---|---|---|---|"]
        for setting in SETTINGS.values():
            if setting.name.rpartition(".")[0] == table:
                default = ".allswell/ nearby" if setting.name == "store" else f"`{setting.show(setting.default)}`"
                name = f"`{setting.name}`" + (" (r)" if setting.per_role else "")
                lines.append(f"| {name} | {default} | `{setting.env()}` | {setting.description} |")
        lines.append("")
    lines += ["## `[roles.NAME]`: what tasks of a role have of their own", ""]
    lines += [
        "A role can have its own value of every setting marked (r); what it does not set, it inherits. These roles"
    ]
    lines += ["differ by default:", "", "| setting | default | environment |", "|---|---|---|"]
    for role, own in ROLES.items():
        for name, value in own.items():
            env = SETTINGS[name].env(role)
            lines.append(f"| `roles.{role}.{name}` | `{SETTINGS[name].show(value)}` | `{env}` |")
    return "\n".join(lines) + "\n"


# --- commands ---------------------------------------------------------------------------------------------------------


def all_commands() -> str:
    """Every command, group by group, as its signature declares it."""
    every = app.commands().named.values()
    lines = ["# Commands", ""]
    lines += [
        "`allswell COMMAND --help` shows the same in a terminal; `allswell completion --install` lets your shell",
        "complete it. Wherever an id is asked for, a name does if only one has it. Lengths of time are text such as",
        "`15m`, `1h 30m`, `400ms`. What `--json` prints is in [output.md](output.md).",
        "",
        "| exit code | meaning |",
        "|---|---|",
    ]
    said = sentences(context, "Exit")
    lines += [f"| {int(code)} | {said[code.name]} |" for code in context.Exit]
    lines += ["", "## `allswell` alone", "", 'How things stand: what needs you first, or "All\'s well."', ""]
    lines += [*options(parameters(app.bare)), ""]
    for group in GROUPS:
        lines += [f"## {group}", ""]
        for command in every:
            if command.group == group:
                lines += one_command(command)
    return "\n".join(lines).rstrip() + "\n"


def one_command(command: CliCommand) -> list[str]:
    """A command's section: what it does, what it takes, examples."""
    known = parameters(command.function)
    lines = [f"### `{command.name}`", "", *paragraphs(command.function.__doc__), "", f"    {usage(command, known)}", ""]
    lines += [*options(known), ""]
    if command.examples:
        lines += ["```sh", *(re.sub(r" {2,}(?=\S)", "  # ", line) for line in command.examples), "```", ""]
    return lines


def place(one: Parameter) -> str:
    """How a parameter without a name is written."""
    return one.metavar if one.required else f"[{one.metavar}]"


def options(known: Sequence[Parameter]) -> list[str]:
    """The table of what a command takes."""
    lines = ["| given | default | what it is for |", "|---|---|---|"]
    for one in known:
        named = ", ".join(f"`{name}`" for name in one.declared.names) or f"`{place(one)}`"
        value = f" `{value_of(one)}`" if one.declared.names and not one.flag else ""
        if one.declared.bare is not None:
            named, value = f"`{one.declared.names[0]}[={one.metavar}]`", ""
        text = one.declared.help
        if one.declared.envvar:
            text += f" Or in the environment: `{one.declared.envvar}`."
        if one.bounds:
            text += f" {one.bounds[0].upper()}{one.bounds[1:]}."
        lines.append(f"| {named}{value} | {default_of(one)} | {text} |".replace("\n", " "))
    return lines


def value_of(one: Parameter) -> str:
    """What stands for an option's value."""
    return " or ".join(one.choices) or one.metavar


def default_of(one: Parameter) -> str:
    """What holds where a parameter is not given."""
    if one.required:
        return "(required)"
    return f"`{one.shown_default}`" if one.shown_default else ""


# --- what is printed --------------------------------------------------------------------------------------------------


# --- Python -----------------------------------------------------------------------------------------------------------


def python_api() -> str:
    """Every public name with its sentence, and what a watch and a lease can be asked."""
    lines = ["# What Python can call", ""]
    lines += [
        "`async with allswell.open(url) as watch:` gives a `Watch`. Without `async` it is a `SyncWatch`: the same"
    ]
    lines += ["calls with the same parameters, without `await`. Types are shipped (`py.typed`).", ""]
    lines += ["| name | what it is |", "|---|---|"]
    for name in allswell.__all__:
        given = getattr(allswell, name)
        is_id = getattr(given, "__module__", "") == "allswell.domain.ids"
        said = f"The id of a {name.removesuffix('Id').lower()}: a `str`." if is_id else first_sentence(given)
        lines.append(f"| `{name}` | {said} |")
    for title, kind in (("A watch", allswell.Watch), ("A lease", allswell.Lease)):
        lines += ["", f"## {title}", "", "| call | what it does |", "|---|---|", *calls(kind)]
    return "\n".join(lines) + "\n"


def first_sentence(given: object) -> str:
    """What something says of itself, as far as the first line."""
    said = (inspect.getdoc(given) or "").splitlines()
    return said[0].replace("|", "\\|") if said else ""


def calls(kind: type) -> Iterator[str]:
    """The public methods, properties and described fields of a class, each with its parameters."""
    for name, member in inspect.getmembers(kind):
        is_field = inspect.ismemberdescriptor(member) and bool(inspect.getdoc(member))
        if name.startswith("_") or not (callable(member) or is_field or isinstance(member, property)):
            continue
        shown = name
        if not is_field and not isinstance(member, property):
            given = inspect.signature(member).parameters.values()
            bare = [one.replace(annotation=one.empty) for one in given if one.name != "self"]
            shown += re.sub(r"<function \w+ at \w+>", "…", str(inspect.Signature(bare)))
        yield f"| `{shown}` | {first_sentence(member.fget if isinstance(member, property) else member)} |"


def output() -> str:
    """The rules of every `--json`, and which command answers with which shape."""
    lines = ["# What `--json` prints", "", *paragraphs((views.__doc__ or "").partition("\n\nEach noun")[0]), ""]
    lines += ["## Errors", "", *paragraphs(error_shape.__doc__), ""]
    lines += [
        "| `kind` | `code` | what happened |",
        "|---|---|---|",
        "| `refused` | see [errors.md](errors.md) | the caller is wrong; nothing was changed |",
        "| `lease_lost` | `lease_lost` | somebody else owns the work now, or nobody: stop |",
        "| `unavailable` | `unavailable` | the store cannot be reached, or cannot write: try later |",
        "| `service_parked` | `service_parked` | a service asked everybody to wait |",
        "| `breaker_open` | `breaker_open` | a service keeps failing and is left alone |",
        "| `bug` | `bug` | Allswell is wrong |",
        "",
        "## Answers",
        "",
        "The shapes are in [output.schema.json](output.schema.json) (JSON Schema 2020-12), under `$defs`; what a",
        "command can answer with stands there under `properties`, by its name. Instead of each an `Error` may come.",
        "",
        "| command | answers with |",
        "|---|---|",
    ]
    for name, answer in ANSWERS.items():
        said = " or ".join(f"`{name_of(shape)}`" for shape in answer.shapes)
        lines.append(f"| `{name}` | {said}{', one a line' if answer.lines else ''} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for page, text in pages().items():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
        print(page.relative_to(DOCS.parent))
