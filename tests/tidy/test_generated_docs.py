"""The generated pages are what the code says, and say something about all of it."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from allswell.domain.event import KINDS
from allswell.domain.task import State

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
    assert set(generate.sentences(generate.task, "State")) == {state.name for state in State}


def test_every_event_has_a_sentence_that_ends(generate: ModuleType) -> None:
    assert [name for name, kind in KINDS.items() if not kind.meaning.endswith(".")] == []


def test_every_refusal_has_a_code_and_words(generate: ModuleType) -> None:
    found = list(generate.refusals())
    assert len(found) > 30
    assert [code for code, message, _ in found if not code.replace("_", "").isalpha() or not message.strip("{…}")] == []
