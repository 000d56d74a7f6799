"""The generated pages are what the code says, and say something about all of it."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from allswell import errors
from allswell.domain.rules.event import KINDS
from allswell.domain.task.model import State
from allswell.interfaces.cli import app
from allswell.interfaces.cli.context import Exit
from allswell.interfaces.cli.options import parameters
from allswell.interfaces.cli.registry import GROUPS
from allswell.settings import SETTINGS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_what_the_script_would_write(generate: ModuleType) -> None:
    stale = [path.name for path, text in generate.pages().items() if not path.exists() or path.read_text() != text]
    assert stale == [], "run `make docs`"


def test_every_state_has_a_sentence(generate: ModuleType) -> None:
    assert set(generate.sentences(generate.model, "State")) == {state.name for state in State}


def test_every_event_has_a_sentence_that_ends(generate: ModuleType) -> None:
    assert [name for name, kind in KINDS.items() if not kind.meaning.endswith(".")] == []


def test_every_refusal_has_a_code_and_words(generate: ModuleType) -> None:
    found = list(generate.refusals())
    assert len(found) > 30
    assert [code for code, message, _ in found if not code.replace("_", "").isalpha() or not message.strip("{…}")] == []


# --- nothing is forgotten ---------------------------------------------------------------------------------------------
# The pages are read as they lie on disk: a generator that left something out would agree with the page it wrote.


def page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


def test_every_command_is_in_the_reference_with_all_it_takes() -> None:
    sections = dict(re.findall(r"^### `([a-z -]+)`\n(.*?)(?=^##|\Z)", page("commands.md"), re.DOTALL | re.MULTILINE))
    every = app.commands().named
    assert set(sections) == set(every)
    for name, command in every.items():
        for one in parameters(command.function):
            names = one.declared.names or (one.metavar,)
            assert [word for word in names if word not in sections[name]] == [], name
            assert one.declared.help in sections[name]


def test_every_command_is_in_a_group_and_says_what_it_does() -> None:
    for command in app.commands().named.values():
        assert command.group in GROUPS, command.name
        assert (command.function.__doc__ or "").strip(), command.name


def test_every_exit_code_is_in_the_reference(generate: ModuleType) -> None:
    assert set(generate.sentences(generate.context, "Exit")) == {code.name for code in Exit}
    assert [code for code in Exit if f"\n| {int(code)} | " not in page("commands.md")] == []


def test_every_setting_is_in_the_reference() -> None:
    assert [name for name, setting in SETTINGS.items() if f"| `{name}`" not in page("settings.md")] == []
    assert [name for name, setting in SETTINGS.items() if setting.env() not in page("settings.md")] == []


def test_every_event_is_in_the_reference() -> None:
    assert [kind for kind in KINDS if f"| `{kind}` |" not in page("events.md")] == []


def test_every_error_is_in_the_reference() -> None:
    classes = [name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)]
    assert [name for name in classes if f"## `{name}`" not in page("errors.md")] == []
    # Found by the bare text, not by the generator's own reading of it.
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "allswell").rglob("*.py"))
    codes = set(re.findall(r'\bRefused\(\s*"([a-z_]+)"', source))
    assert len(codes) > 30
    assert sorted(code for code in codes if f"| `{code}` |" not in page("errors.md")) == []
