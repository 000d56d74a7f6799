"""The tree stays as a reader expects it: small files, telling names, nothing of one machine."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 400  # lines; a longer file wants splitting
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
