"""The tree stays as a reader expects it: files of a readable size, telling names, nothing of one machine."""

import ast
import re
import subprocess
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from msgspec import Struct

ROOT = Path(__file__).parents[2]
LONGEST = 900  # lines: a module is what a maintainer opens for one kind of change, and more than this is two kinds
CLASS_NAMES_TWICE = {"Fail"}  # a command on the wire; and a public name of `testing.provider`, which tests write
# What is still to be mended of the product, as it was counted on 2026-11-18. These numbers only go down: a change that
# brings one down by much writes the new one here.
SMALL_MODULES = 4
EMPTY_NAMES_BOUND = 1_850
SMALL = 60  # lines: a module with fewer belongs to the one that imports it; `__init__` is not counted
CROWDED = 25  # modules in one folder, `__init__` not counted
CROWDED_FOLDERS: set[str] = set()  # none is to be added
EMPTY_NAMES = {"found", "said", "told", "given", "one", "what", "its"}  # a variable is named after what it holds
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
FOREIGN_PATH = re.compile(r"(?<![\w.~*$})\]-])/(?:work|root)(?![\w-])")


@cache
def files() -> list[Path]:
    """Every file that is or could be committed, relative to the root."""
    listed = subprocess.run(
        # safe.directory: in a container the checkout often belongs to someone else.
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    found = sorted({Path(name) for name in listed.stdout.split("\0") if name})
    return [path for path in found if (ROOT / path).is_file()]  # --cached also lists what was just deleted


def modules(*tops: str) -> list[Path]:
    return [path for path in files() if path.suffix == ".py" and (not tops or path.parts[0] in tops)]


def test_the_list_of_files_is_not_empty() -> None:
    assert Path("src/allswell/__init__.py") in files()


def test_no_product_file_is_too_long() -> None:
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path in modules("src")}
    assert {path: length for path, length in lengths.items() if length > LONGEST} == {}


def test_no_class_name_stands_twice() -> None:
    """A name for one thing: whoever searches for a class finds one."""
    every = [
        name
        for path in modules("src")
        for name in re.findall(r"^\s*class (\w+)\b", (ROOT / path).read_text(), re.MULTILINE)
    ]
    assert {name for name, count in Counter(every).items() if count > 1} == CLASS_NAMES_TWICE


def test_small_modules_become_fewer() -> None:
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path in modules("src")}
    small = [path for path, length in lengths.items() if length < SMALL and not path.endswith("__init__.py")]
    assert len(small) <= SMALL_MODULES, f"{len(small)} have fewer than {SMALL} lines: put new ones to their importers"


def test_crowded_folders_become_fewer() -> None:
    package = Path("src/allswell")
    counts = Counter(path.parent for path in modules("src") if path.name != "__init__.py")
    crowded = {str(folder.relative_to(package)) for folder, count in counts.items() if count > CROWDED}
    assert crowded - CROWDED_FOLDERS == set(), f"more than {CROWDED} modules: a folder for each noun"
    assert CROWDED_FOLDERS - crowded == set(), "take these off the list"


def test_empty_variable_names_become_fewer() -> None:
    """Where a variable or a parameter is given one of them; that it is read does not count."""
    counts: Counter[str] = Counter()
    for path in modules("src"):
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                counts[node.id] += 1
            elif isinstance(node, ast.arg):
                counts[node.arg] += 1
    empty = {name: counts[name] for name in sorted(EMPTY_NAMES)}
    assert sum(empty.values()) <= EMPTY_NAMES_BOUND, f"{sum(empty.values())}: {empty}"


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = [str(path) for path in modules() if VAGUE & {path.stem.strip("_"), *path.parts[:-1]}]
    assert vague == []


def test_every_module_opens_with_what_it_is_for() -> None:
    silent = [str(path) for path in modules() if not ast.get_docstring(ast.parse((ROOT / path).read_text()))]
    assert silent == []


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    found = []
    for path in files():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not text
        for number, line in enumerate(text.splitlines(), start=1):
            if FOREIGN_PATH.search(line):
                found.append(f"{path}:{number}: {line.strip()[:80]}")
    assert found == []


@pytest.mark.parametrize("path", ["/{0}", "see /{0}/main", "'/{0}'", "file:///{0}/x", "cd /{0}; ls"])
@pytest.mark.parametrize("name", ["work", "root"])
def test_the_search_for_such_paths_finds_them(path: str, name: str) -> None:
    assert FOREIGN_PATH.search(path.format(name))


@pytest.mark.parametrize("text", ["src/{0}", "/api/v1/{0}", "./{0}", "/{0}er", "run / {0}"])
@pytest.mark.parametrize("name", ["work", "root"])
def test_the_search_for_such_paths_finds_no_others(text: str, name: str) -> None:
    assert not FOREIGN_PATH.search(text.format(name))


def test_every_file_of_tests_is_collected() -> None:
    """A file with tests whose name pytest does not know would silently prove nothing."""
    lost = [
        str(path)
        for path in modules("tests")
        if not path.name.startswith("test_")
        and any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
        )
    ]
    assert lost == []


def test_every_field_of_every_command_has_a_bound() -> None:
    """Whoever adds a field says in domain/rules/bounds.py what it may hold: every door is held to that."""
    from allswell.domain.access.rights import ACT_OF
    from allswell.domain.agents.human_session import HumanSession
    from allswell.domain.agents.status import AgentSlot, Presence, Survivors
    from allswell.domain.rules.bounds import parts_of
    from allswell.errors import Bug

    missing = []
    kinds: list[type[Struct]] = [*ACT_OF, Presence, AgentSlot, Survivors, HumanSession]
    for kind in kinds:
        try:
            parts_of(kind)
        except Bug as error:
            missing.append(str(error))
    assert missing == []


def test_every_library_that_we_use_has_the_version_that_was_tested() -> None:
    """`constraints.txt` says what the tests ran with, each by one version and no other."""
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    lines = [line for line in pins if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+", line) for line in lines)
    pinned = {_library(line) for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for name in extras if name != "postgres-server" for one in extras[name])]
    assert {_library(one) for one in wanted} - {"allswell"} <= pinned


def _library(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


# --- documents --------------------------------------------------------------------------------------------------------

_ADR = re.compile(
    r"# (?P<number>\d+)\. (?P<title>[^\n]+)\n\n"
    r"- Date: \d{4}-\d\d-\d\d\n"
    r"- Status: (?P<status>accepted|(?:superseded|amended) by (?:\[\d{4}\]\(\S+\.md\)(?:, )?)+)(?:[. ][^\n]*)?\n\n"
    r"## Context\n\n.+\n\n## Decision\n\n.+\n\n## Consequences\n\n.+",
    re.DOTALL,
)
_NAMED = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|sql))\b")


def documents() -> list[Path]:
    return [path for path in files() if path.suffix == ".md"]


def test_every_decision_is_recorded_in_one_format_and_stands_in_the_index() -> None:
    folder = Path("docs/adr")
    index = (ROOT / folder / "README.md").read_text()
    records = [path for path in documents() if path.parent == folder and path.name != "README.md"]
    assert len(records) > 50
    for path in records:
        record = _ADR.fullmatch((ROOT / path).read_text())
        assert record is not None, f"{path}: title, Date, Status, then Context, Decision and Consequences"
        assert path.name.startswith(f"{int(record['number']):04}-"), path
        row = f"| [{int(record['number']):04}]({path.name}) | {record['title']} | {record['status']} | "
        assert row in index, f"docs/adr/README.md lacks: {row}"
        others = re.findall(r"\]\(([^)]+)\)", record["status"])
        assert [name for name in others if not (ROOT / folder / name).exists()] == [], path
    assert index.count("\n| [") == len(records)


def test_documents_name_only_files_that_there_are() -> None:
    """A path may leave out where it begins: `task/model.py` is a file of some folder `task`."""
    every = {str(Path(*path.parts[begin:])) for path in files() for begin in range(len(path.parts))}
    missing = [
        f"{path}: {name}"
        for path in documents()
        if path.name != "CHANGELOG.md"  # it tells of what is gone
        for name in _NAMED.findall((ROOT / path).read_text())
        if name not in every
    ]
    assert missing == []


def test_links_between_documents_lead_somewhere() -> None:
    lost = [
        f"{path}: {target}"
        for path in documents()
        for target in re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", (ROOT / path).read_text())
        if not (ROOT / path.parent / target).exists()
    ]
    assert lost == []


def test_the_changelog_begins_with_what_is_unreleased_and_then_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Unreleased", version]
