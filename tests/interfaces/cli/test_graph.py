"""`allswell graph`: a flow in words, as data and as a picture."""

from pathlib import Path
from xml.etree import ElementTree as ET

from allswell.flows.graph import lay_out
from allswell.flows.schema import load_flow
from allswell.settings import look
from tests.interfaces.cli.console import Console

FLOW = """\
name: build
steps:
  - {id: plan, agent: ada, prompt: Plan.}
  - {id: lint, run: make lint}
  - {id: build, needs: plan, run: [make, "<all> & more"], audit: [make, check], timeout_override: 20m}
  - {id: test, needs: [build, lint], python: "a.b:c", matrix: {os: [x, y]}}
"""
SVG = "{http://www.w3.org/2000/svg}"


def flow(folder: Path, text: str = FLOW) -> str:
    (folder / "f.yaml").write_text(text)
    return "f.yaml"


def test_words_tell_the_waves_the_needs_and_the_longest_way(cli: Console) -> None:
    said = cli.ok("graph", flow(cli.folder)).out
    assert said.startswith("build  5 steps in 3 waves\n")
    lines = [line.split() for line in said.splitlines()]
    assert ["1", "●", "plan", "10m", "agent", "ada"] in lines
    assert ["3", "●", "test", "×2", "10m", "build,", "lint", "python", "a.b:c"] in lines
    assert "then audited" in said
    assert said.endswith("● the longest path: plan → build → test; limit 30m\n")


def test_data_has_every_step_with_its_place(cli: Console) -> None:
    made = cli.ok("graph", flow(cli.folder), "--json").json
    assert (made["flow"], made["limit_ms"]) == ("build", 1_800_000)
    assert {one["step_id"]: (one["wave"], one["needs"], one["members"]) for one in made["steps"]} == {
        "plan": (0, [], 1),
        "lint": (0, [], 1),
        "build": (1, ["plan"], 1),
        "test": (2, ["build", "lint"], 2),
    }


def test_the_picture_is_xml_with_a_box_for_each_step_and_a_line_for_each_need(cli: Console) -> None:
    cli.ok("graph", flow(cli.folder), "--svg", "f.svg")
    root = ET.fromstring((cli.folder / "f.svg").read_text())  # noqa: S314 - we have just written it
    boxes = [box for box in root.iter(f"{SVG}rect") if box.get("class") == "box"]
    assert (len(boxes), len(list(root.iter(f"{SVG}path")))) == (4, 3)
    assert "make <all> & more, 20m (override)" in [one.text for one in root.iter(f"{SVG}title")]
    assert cli.ok("graph", "f.yaml", "--svg", "-").out == (cli.folder / "f.svg").read_text()


def test_a_line_that_passes_a_wave_has_a_place_of_its_own_there(tmp_path: Path) -> None:
    layout = lay_out(load_flow(FLOW, "f.yaml", look(tmp_path, environ={}))[0])
    (passing,) = [line for line in layout.lines if line.rows]
    assert (passing.start, passing.end) == ("lint", "test")
    taken = {node.row for node in layout.nodes if node.wave == 1}
    assert taken.isdisjoint(passing.rows)
    assert layout.sizes == (2, 2, 1)


def test_mistakes_are_told_and_nothing_is_drawn(cli: Console) -> None:
    said = cli("graph", flow(cli.folder, "steps: [{id: a, run: x, needs: a}]"), "--svg", "f.svg")
    assert (said.code, "dependency cycle detected: a -> a" in said.err) == (2, True)
    assert not (cli.folder / "f.svg").exists()
    assert "cannot be read: No such file" in cli("graph", "gone.yaml").err
    assert "cannot be written" in cli("graph", flow(cli.folder), "--svg", "gone/f.svg").err


def test_a_long_chain_is_drawn(cli: Console) -> None:
    steps = "".join(f"- {{id: s{n}, run: x, needs: s{n - 1}}}\n" for n in range(1, 3_000))
    flow(cli.folder, "steps:\n- {id: s0, run: x}\n" + steps)
    assert cli.ok("graph", "f.yaml").out.startswith("f  3,000 steps in 3,000 waves\n")
    assert cli.ok("graph", "f.yaml", "--svg", "-").out.count("<g ") == 3_000


def test_the_schema_is_printed_for_editors(cli: Console) -> None:
    assert cli.ok("check", "--schema").json["title"] == "A flow of Allswell"
