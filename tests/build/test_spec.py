"""The spec of a build is read strictly, and every mistake is told with its file, line and field."""

import os
import random
import statistics
import time
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.build.spec import BadSpec, SpecReader, read_component, read_spec, read_yaml
from allswell.domain.build.component import BuildGraph, BuildSpec, Component, cycle_in
from allswell.domain.build.line import tasks_lines, write
from allswell.domain.build.state import ComponentState
from allswell.errors import Refused
from tests.build.scene import spec_of

SHOP = """\
name: shop
url: https://example.org/spec
components:
  - name: database
  - name: api
    depends on: [database]
    description: The HTTP interface.
  - name: web
    depends on:
      - name: api
      - database
"""


def written(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def mistakes(path: Path) -> list[str]:
    with pytest.raises(BadSpec) as caught:
        read_spec(path)
    assert caught.value.code == "bad_spec"
    assert all(str(mistake) in caught.value.message for mistake in caught.value.mistakes)
    return [str(mistake).replace(str(path), "SPEC") for mistake in caught.value.mistakes]


def test_a_file_becomes_a_spec(tmp_path: Path) -> None:
    assert read_spec(written(tmp_path / "x.yaml", SHOP)) == BuildSpec(
        "shop",
        (
            Component("database"),
            Component("api", ("database",), "The HTTP interface."),
            Component("web", ("api", "database")),
        ),
        "https://example.org/spec",
    )


def test_a_file_without_a_name_is_called_after_itself(tmp_path: Path) -> None:
    assert read_spec(written(tmp_path / "my shop.yaml", "components:\n  - name: a\n")).name == "my-shop"


def test_a_folder_becomes_a_spec(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    written(shop / "README.md", "depends on:\n- name: nobody\n")
    written(shop / "_draft.md", "depends on:\n- name: nobody\n")
    written(shop / "notes.txt", "depends on:\n- name: nobody\n")
    written(shop / "database.md", "# Tables\n\nDepends on: none\n")
    written(
        shop / "api.md",
        "# API\n\n## Depends on:\n\n- name: database\n  why: tables\n\n* `cache`\n\nIt depends on taste.\n",
    )
    written(shop / "cache.md", "```\ndepends on:\n- name: example\n```\nNothing else.\n")
    written(shop / "web.md", "---\n**depends on:**\n  - name: [api](api.md)\n  - name: '**cache**'\n---\n- no need\n")
    spec = read_spec(shop)
    assert (spec.name, spec.url) == ("shop", "")
    assert {one.name: one.needs for one in spec.components} == {
        "api": ("database", "cache"),
        "cache": (),
        "database": (),
        "web": ("api", "cache"),
    }
    assert spec.components[0].text.startswith("# API")


@pytest.mark.parametrize(
    "text, told",
    [
        ("", ["SPEC:1:1: YAML: the file is empty. Correct it."]),
        ("components: [a", ["SPEC:2:1: YAML: this is not YAML"]),
        ("a: &x 1\nb: *x\n", ["SPEC:1:4: YAML: an anchor (&x) is not taken; nothing could refer to it. Correct it."]),
        ("steps: []\n", ["SPEC:1:1: components: This is not a spec of a build. Begin with `components:` and a list."]),
        ("components: []\n", ["SPEC:1:1: components: `components:` must be a list with at least one entry."]),
        ("components:\n- nam: a\n", ["SPEC:2:3: name: A component has no name. Begin it with `- name: NAME`."]),
        (
            "components:\n- name: a\n  depends_on: [b]\n",
            ["SPEC:3:3: depends_on: A component has no `depends_on:`. Did you mean 'depends on'?"],
        ),
        ("components:\n- name: a\n  depends on: b\n", ["SPEC:3:3: depends on: `depends on:` must be a list."]),
        (
            "components:\n- name: api\n- name: web\n  depends on: [apo]\n",
            ["SPEC:4:16: depends on: web depends on 'apo', and there is no such component. Did you mean 'api'?"],
        ),
        (
            "components:\n- name: a\n- name: b\n  depends on: [a, a]\n",
            ["SPEC:4:19: depends on: b depends on a twice. Take one out."],
        ),
        (
            "components:\n- name: a\n- name: a\n",
            ["SPEC:3:9: name: There are two components 'a'; the first is at SPEC:2:9. Rename one."],
        ),
        ("components:\n- name: a\n- name: A\n", ["SPEC:3:9: name: 'A' and 'a' (SPEC:2:9) are the same name"]),
        (
            "components:\n- name: ../x\n- name: y.lock\nurl: here\n",
            ["SPEC:2:9: name: '../x' cannot be", "SPEC:3:9: name: 'y.lock' cannot be", "SPEC:4:1: url: 'here' is no"],
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_place(tmp_path: Path, text: str, told: list[str]) -> None:
    found = mistakes(written(tmp_path / "spec.yaml", text))
    assert len(found) == len(told)
    for one, beginning in zip(found, told, strict=True):
        assert one.startswith(beginning)


@pytest.mark.parametrize(
    "text, told",
    [
        (
            "depends on:\n- name: nobody\n",
            "SPEC/a.md:2: depends on: a depends on 'nobody', and there is no such component.",
        ),
        ("depends on: b and c\n", "SPEC/a.md:1: depends on: `depends on:` is followed by 'b and c'."),
        ("x\ndepends on:\nnothing much\n", "SPEC/a.md:2: depends on: `depends on:` names nothing."),
        ("depends on:\n- b\n\nx\ndepends on:\n- c\n", "SPEC/a.md:5: depends on: This is a second list of needs."),
        (b"x\n\xff\n", "SPEC/a.md:2: file: This is not UTF-8 text. Save it as UTF-8."),
        (b"x" * ((1 << 20) + 1), "SPEC/a.md: file: The file has 1,048,577 bytes; at most 1,048,576 are read."),
    ],
)
def test_what_is_wrong_with_a_folder_is_told_with_its_place(tmp_path: Path, text: str | bytes, told: str) -> None:
    spec = tmp_path / "spec"
    written(spec / "b.md", "")
    written(spec / "c.md", "")
    written(spec / "a.md", text)
    (found,) = mistakes(spec)
    assert found.startswith(told)


def test_an_empty_folder_and_no_file_are_refused(tmp_path: Path) -> None:
    assert mistakes(tmp_path)[0].startswith("SPEC: components: There is no component")
    with pytest.raises(Refused, match="there is no file or folder"):
        read_spec(tmp_path / "nowhere")


def test_only_so_many_mistakes_are_told(tmp_path: Path) -> None:
    text = "components:\n" + "".join(f"- name: a{number}\n  depends on: [zz]\n" for number in range(1_000))
    assert len(mistakes(written(tmp_path / "spec.yaml", text))) == 20


@pytest.mark.row("C4")
@pytest.mark.parametrize(
    "needs, told",
    [
        ({"a": ("a",)}, "a -> a"),
        ({"a": ("b",), "b": ("a",)}, "a <-> b"),
        ({"c": ("a",), "a": ("b",), "b": ("c",)}, "a -> b -> c -> a"),
        ({"a": (), "b": ("a",)}, None),
    ],
)
def test_a_cycle_in_a_spec_is_named(needs: dict[str, tuple[str, ...]], told: str | None) -> None:
    assert cycle_in(BuildSpec("x", tuple(Component(name, need) for name, need in needs.items()))) == told


def test_what_a_component_needs_holds_it_back_and_one_change_reaches_only_what_needs_it() -> None:
    graph = BuildGraph(spec_of({"db": (), "api": ("db",), "web": ("api",), "docs": ()}))
    states: dict[str, ComponentState] = {}
    own: dict[str, ComponentState] = {}
    graph.bring_up_to_date(states, own, graph.needs)
    assert set(states.values()) == {"waiting"}
    assert [name for name in graph.needs if graph.has_its_needs(name, states)] == ["db", "docs"]
    own["db"] = "merged"
    assert graph.bring_up_to_date(states, own, ["db"]) == {"db", "api"}
    assert graph.has_its_needs("api", states)
    assert not graph.has_its_needs("web", states)
    own["api"] = "skipped"
    assert graph.bring_up_to_date(states, own, ["api"]) == {"api", "web"}
    assert states == {"db": "merged", "api": "skipped", "web": "skipped", "docs": "waiting"}
    own |= {"docs": "free"}
    graph.bring_up_to_date(states, own, ["docs", "unknown"])
    assert states["docs"] == "free"
    changed = BuildGraph(spec_of({"db": (), "docs": ("more",), "more": ()}))
    again: dict[str, ComponentState] = {}
    changed.bring_up_to_date(again, own, changed.needs)
    assert again == {"db": "merged", "docs": "waiting", "more": "waiting"}  # offered before the spec was changed


@given(st.text(max_size=300))
def test_no_text_whatever_breaks_the_readers(text: str) -> None:
    read_yaml("components:\n- name: a\n  description: |\n    " + text, "x", "x")
    read_yaml(text, "x", "x")
    read_component("a", "depends on:\n" + text, "x", [])


def graph_of(size: int, seed: int) -> BuildSpec:
    """Components in any order, each with up to four needs among those before it."""
    chance = random.Random(seed)
    names = [f"component-{number:05}" for number in range(size)]
    components = [
        Component(name, tuple(chance.sample(names[:place], min(place, chance.randint(0, 4)))))
        for place, name in enumerate(names)
    ]
    chance.shuffle(components)
    return BuildSpec("large", tuple(components), "https://example.org/spec")


def test_a_spec_is_read_again_when_its_files_have_changed(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# a")
    os.utime(tmp_path / "a.md", (1, 1))
    os.utime(tmp_path, (1, 1))
    reader = SpecReader(tmp_path)
    first = reader()
    assert reader() is first
    (tmp_path / "b.md").write_text("# b")
    os.utime(tmp_path / "b.md", (2, 2))
    os.utime(tmp_path, (2, 2))
    assert [one.name for one in reader().components] == ["a", "b"]
    (tmp_path / "b.md").write_text("depends on: nothing-there")
    with pytest.raises(BadSpec):
        reader()
    (tmp_path / "b.md").write_text("depends on:\n- name: a")  # just now: looked at, whatever the clock says
    assert reader().components[1].needs == ("a",)
    (tmp_path / "b.md").write_text("depends on:\n- name: b")
    assert reader().components[1].needs == ("b",)


@pytest.mark.row("C4")
@pytest.mark.realtime
def test_ten_thousand_components_are_checked_and_offered_in_five_times_what_sorting_them_takes() -> None:
    spec = graph_of(10_000, seed=1)
    ratios = []
    for _ in range(5):
        start = time.perf_counter()
        list(TopologicalSorter({one.name: one.needs for one in spec.components}).static_order())
        sorted_at = time.perf_counter()
        graph = BuildGraph(spec)
        assert not graph.cycle
        states: dict[str, ComponentState] = {}
        graph.bring_up_to_date(states, {}, graph.needs)
        free = [name for name in graph.needs if graph.has_its_needs(name, states)]
        assert [write(line) for line in tasks_lines(spec.url, free)]
        ratios.append((time.perf_counter() - sorted_at) / (sorted_at - start))
    assert statistics.median(ratios) <= 5


def test_a_root_with_components_whose_needs_are_partly_prose(tmp_path: Path) -> None:
    inner = tmp_path / "components"
    inner.mkdir()
    (tmp_path / "product.md").write_text("# The product\n\ndepends on:\n- nothing at all\n")
    (inner / "api.md").write_text("# api\n\ndepends on:\n- sqlite file (read and write)\n- builder: says CLAIM\n")
    (inner / "web.md").write_text("# web\n\ndepends on:\n- api component for all data operations\n- a browser\n")
    (inner / "all.md").write_text("# all\n\ndepends on:\n- name: api\n- `web`\n")
    spec = read_spec(tmp_path)
    assert {one.name: one.needs for one in spec.components} == {"all": ("api", "web"), "api": (), "web": ("api",)}
    (inner / "web.md").write_text("# web\n\ndepends on:\n- apy\n")
    with pytest.raises(BadSpec, match="Did you mean 'api'"):
        read_spec(tmp_path)
