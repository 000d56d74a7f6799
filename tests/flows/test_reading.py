"""Flow files become flows: every good shape, every bad one with its place, and the published schema beside it."""

import json
import time
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from allswell.errors import Refused
from allswell.flows.loader import load
from allswell.flows.reader import STEP_KEYS, TOP_KEYS
from allswell.flows.schema import load_flow, schema
from allswell.flows.spec import (
    AgentPrompt,
    Flow,
    Function,
    InputSpec,
    OutputSpec,
    RunCommand,
    ValueReference,
    fill,
    fill_text,
    parse,
    used_steps,
)
from allswell.settings import look
from tests.flows.corpus import GOOD, SENSELESS, SHAPELESS


def read(tmp_path: Path, text: str, settings: str = "") -> Flow:
    (tmp_path / "allswell.toml").write_text(settings)
    return load_flow(text, "f.yaml", look(tmp_path, environ={}))[0]


@pytest.fixture(scope="module")
def published() -> jsonschema.Draft202012Validator:
    text = files("allswell.flows").joinpath("flow.schema.json").read_text(encoding="utf-8")
    made = json.loads(text)
    assert made == schema(), "run `make docs`"
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_a_good_file_is_taken_by_the_loader_and_by_the_schema(
    tmp_path: Path, published: jsonschema.Draft202012Validator, text: str
) -> None:
    assert read(tmp_path, text).steps
    published.validate(load(text, "f.yaml").plain())


@pytest.mark.parametrize("text", SHAPELESS.values(), ids=SHAPELESS)
def test_what_has_no_shape_is_refused_by_the_loader_and_by_the_schema(
    tmp_path: Path, published: jsonschema.Draft202012Validator, text: str
) -> None:
    with pytest.raises(Refused) as refused:
        read(tmp_path, text)
    assert refused.value.code == "bad_flow"
    assert str(refused.value.where).startswith("f.yaml:")
    assert not published.is_valid(load(text, "f.yaml").plain())


@pytest.mark.row("C4", "F12")
@pytest.mark.parametrize("text, says", SENSELESS.values(), ids=SENSELESS)
def test_what_makes_no_sense_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(Refused) as refused:
        read(tmp_path, text)
    assert says in refused.value.message


def test_every_key_stands_in_the_schema() -> None:
    made = schema()
    assert tuple(made["properties"]) == TOP_KEYS
    assert tuple(made["properties"]["steps"]["items"]["properties"]) == STEP_KEYS


def test_all_of_a_file_arrives(tmp_path: Path) -> None:
    flow = read(tmp_path, GOOD["all of it"])
    plan, build, test, report, last = flow.steps
    assert (flow.name, flow.timeouts.step, flow.timeouts.llm_call) == ("build", 900_000, 180_000)
    assert flow.inputs == (
        InputSpec("branch", "main"),
        InputSpec("count", 3),
        InputSpec("level", "high", description="How much."),
        InputSpec("who", required=True),
    )
    assert plan.work == AgentPrompt("ada", "Plan {{ inputs.branch }} for {{ inputs.who }}.")
    assert build.work == RunCommand(("make", "-j{{ inputs.count }}", "3", "true"))
    assert build.env == {"LEVEL": "{{ inputs.level }}", "EMPTY": "", "N": "4"}
    assert build.outputs == (OutputSpec("wheel", "dist/app.whl"), OutputSpec("log", "build.log"))
    assert build.retry is not None
    assert (build.retry.retries, build.retry.backoff) == (1, 2_000)
    assert build.audit == RunCommand(("make", "check"))
    assert (flow.limit(test), flow.limit(build)) == (1_200_000, 900_000)
    assert test.work == RunCommand(("pytest", "--os", "{{matrix.os}}", "{{steps.build.outputs.wheel}}"))
    assert used_steps(test) == ["build"]
    assert test.count() == 12
    assert [member.id for member in test.members()][:3] == ["test@linux,3.11,1", "test@linux,3.11,2.5",
                                                            "test@linux,3.11,true"]  # fmt: skip
    assert isinstance(report.work, Function)
    assert (report.work.module, report.work.function) == ("jobs.report", "write")
    assert used_steps(report) == ["plan"]
    assert (last.id, last.needs) == ("7", ("report",))


def test_a_flow_without_a_name_is_called_as_its_file(tmp_path: Path) -> None:
    settings = look(tmp_path, environ={})
    assert load_flow("steps: [{id: a, run: x}]", "some/where/nightly.yaml", settings)[0].name == "nightly"
    assert load_flow("steps: [{id: a, run: x}]", "a b.yaml", settings)[0].name == "flow"


def test_members_have_names_that_files_can_have_and_that_differ(tmp_path: Path) -> None:
    text = "steps: [{id: a, run: x, matrix: {v: ['a/b', 'a_b', 'a b', '', '..', " + "x" * 60 + ", é]}}]"
    ids = [member.id for member in read(tmp_path, text).steps[0].members()]
    assert len(set(ids)) == 7
    assert all(id_.isascii() and "/" not in id_ and " " not in id_ and len(id_) < 60 for id_ in ids)
    assert ids[1] == "a@a_b"


@pytest.mark.row("F12")
def test_the_override_is_announced_when_the_flow_is_loaded(tmp_path: Path) -> None:
    text = "steps: [{id: heavy-analysis, run: x, timeout_override: 1200000}]"
    flow, found = load_flow(text, "f.yaml", look(tmp_path, environ={}))
    assert flow.limit(flow.steps[0]) == 1_200_000
    assert [(one.rule, str(one.sum)) for one in found] == [("override", "20m > 15m")]


def test_limits_of_commands_alone_are_not_held_against_calls_of_models(tmp_path: Path) -> None:
    assert read(tmp_path, "timeouts: {step: 1m}\nsteps: [{id: a, run: x}]").timeouts.step == 60_000


def test_a_matrix_of_ten_thousand_is_loaded_in_two_seconds_of_a_processor(tmp_path: Path) -> None:
    axis = ", ".join(map(str, range(100)))
    many = f"{{id: many, needs: first, python: 'a:b', matrix: {{a: [{axis}], b: [{axis}]}}}}"
    text = f"steps:\n- {{id: first, run: x}}\n- {many}\n"
    began = time.process_time()
    flow = read(tmp_path, text)
    members = [member for step in flow.steps for member in step.members()]
    assert time.process_time() - began < 2
    assert len(members) == 10_001
    assert members[-1].id == "many@99,99"
    assert members[-1].values == {"a": 99, "b": 99}


# --- values -----------------------------------------------------------------------------------------------------------


def lookup(reference: ValueReference) -> object:
    return {"inputs.a": "x y", "inputs.n": 3, "steps.s.result": {"k": [1, None]}}[str(reference)]


@pytest.mark.parametrize(
    "text, filled",
    [
        ("plain", "plain"),
        ("", ""),
        ("{{ inputs.a }}", "x y"),
        ("<{{inputs.a}}|{{ inputs.n }}>", "<x y|3>"),
        ("{{ steps.s.result }}", '{"k":[1,null]}'),
        ("{{{{.Names}}", "{{.Names}}"),
        ("{{{{{{ inputs.n }}", "{{3"),
        ("}} {{ inputs.n }} }}", "}} 3 }}"),
    ],
)
def test_values_are_put_into_texts(text: str, filled: str) -> None:
    assert fill_text(text, lookup) == filled


def test_a_value_that_stands_alone_keeps_its_type() -> None:
    given = {"a": "{{ inputs.n }}", "b": ["{{ steps.s.result }}", "n={{ inputs.n }}"], "c": 5, "d": None}
    assert fill(given, lookup) == {"a": 3, "b": [{"k": [1, None]}, "n=3"], "c": 5, "d": None}


def test_what_a_value_holds_is_never_read_again() -> None:
    assert fill_text("{{ inputs.a }}", lambda _: "{{ inputs.a }}; rm -rf /") == "{{ inputs.a }}; rm -rf /"
    assert parse("a {{ inputs.n }}") == ("a ", ValueReference("inputs", ("n",)))


_TWO_STEPS = "name: f\nsteps:\n- {{id: a, run: [make]}}\n- {{id: b, needs: a, {second}}}\n"


@pytest.mark.parametrize(
    "second",
    [
        "run: [sh, -c, 'echo {{ steps.a.stdout }}']",
        "run: [/bin/bash, -o, pipefail, -euc, 'echo \"{{ steps.a.result.x }}\"']",
        "run: [env, A=1, sh, -c, 'echo {{steps.a.stdout}}']",
        "run: \"sh -c 'echo {{ steps.a.stdout }}'\"",
        "run: [python3, -c, 'print({{ steps.a.result }})']",
        "run: [make], verify: [sh, -c, 'test {{ steps.a.stdout }}']",
    ],
)
def test_what_a_step_printed_does_not_become_a_part_of_a_script(tmp_path: Path, second: str) -> None:
    """An agent that prints `x; rm -r ~` would have it run, as another user than its own where the flow has one."""
    with pytest.raises(Refused, match="within a script"):
        read(tmp_path, _TWO_STEPS.format(second=second))


@pytest.mark.parametrize(
    "second",
    [
        "run: [sh, -c, 'echo \"$1\"', sh, '{{ steps.a.stdout }}']",
        "run: [sh, -c, 'exit {{ steps.a.exit_code }}']",
        "run: [python3, script.py, -c, '{{ steps.a.stdout }}']",
        "run: [sh, script.sh, '{{ steps.a.stdout }}'], env: {X: '{{ steps.a.stdout }}'}",
    ],
)
def test_what_a_step_printed_is_handed_over_as_a_word(tmp_path: Path, second: str) -> None:
    assert len(read(tmp_path, _TWO_STEPS.format(second=second)).steps) == 2
