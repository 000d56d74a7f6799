"""YAML is read strictly, by both of PyYAML's parsers, and whatever is wrong has its place."""

import random
import sys
import time

import pytest
import yaml

from allswell.errors import Refused
from allswell.flows import loader
from allswell.flows.loader import DEEPEST, LARGEST, BadYaml, YamlPosition, load

PARSERS = {"C": yaml.CSafeLoader, "Python": yaml.SafeLoader}


def use(patch: pytest.MonkeyPatch, parser: str) -> None:
    patch.setattr(loader, "_library", lambda _: PARSERS[parser])


@pytest.fixture(params=sorted(PARSERS), autouse=True)
def _parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers of the library: where the C one is missing, the other must do the same."""
    use(monkeypatch, request.param)


def refused(content: bytes | str) -> BadYaml:
    with pytest.raises(BadYaml) as caught:
        load(content, "flow.yaml")
    assert caught.value.code == "bad_yaml"
    return caught.value


def test_values_are_read_as_json_would_and_every_other_word_is_text() -> None:
    text = """\
# a comment
list: [1, -2.5, 1e3, 1_000, true, null, ~]
words: [yes, off, No, 1:30, 0x10, 010, 2026-01-31, .inf, "1", '2', =, 12ms]
empty:
block: |
  two
  lines
1: one
"""
    root = load(text, "flow.yaml")
    assert root.plain() == {
        "list": [1, -2.5, 1000.0, 1000, True, None, None],
        "words": ["yes", "off", "No", "1:30", "0x10", 10, "2026-01-31", ".inf", "1", "2", "=", "12ms"],
        "empty": None,
        "block": "two\nlines\n",
        "1": "one",
    }


def test_files_of_other_systems_are_taken() -> None:
    assert load(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "flow.yaml").plain() == {"a": 1, "b": 2}


def test_everything_knows_its_place() -> None:
    root = load("a:\n  - b: 1\n    c: 2\n", "flow.yaml")
    assert isinstance(root.value, dict)
    listed = root.value["a"].node.value
    assert isinstance(listed, list)
    inner = listed[0].value
    assert isinstance(inner, dict)
    assert (inner["c"].mark, inner["c"].node.mark) == (YamlPosition(3, 5), YamlPosition(3, 8))
    assert listed[0].mark == YamlPosition(2, 5)


@pytest.mark.parametrize(
    "text, mark, says",
    [
        ("a: &x 1\nb: *x\n", YamlPosition(1, 4), "an anchor (&x) is not taken"),
        ("b: *x\n", YamlPosition(1, 4), "an alias (*x) is not taken"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", YamlPosition(4, 3), "the key 'c' is given twice, first on line 3"),
        ("a: 1\n'a': 2\n", YamlPosition(2, 1), "the key 'a' is given twice, first on line 1"),
        ("a:\n  <<: {b: 1}\n", YamlPosition(2, 3), "a merge key (<<) is not taken"),
        ("a: !!python/object:os.system x\n", YamlPosition(1, 4), "a tag (tag:yaml.org,2002:python/object:os.system)"),
        ("? [a, b]\n: 1\n", YamlPosition(1, 3), "a list or a mapping cannot be a key"),
        ("? *a\n: 1\n", YamlPosition(1, 3), "an alias (*a) is not taken"),
        ("steps:\n\t- id: a\n", YamlPosition(2, 1), "a tab indents this line, and YAML takes only spaces"),
        ("steps:\n  - id: a\n\t  run: b\n", YamlPosition(3, 1), "a tab indents this line"),
        ("a: 1\n---\nb: 2\n", YamlPosition(2, 1), "a second document begins"),
        ("", YamlPosition(1, 1), "the file is empty"),
        ("# nothing\n", YamlPosition(1, 1), "the file is empty"),
        ("a: b: c\n", YamlPosition(1, 5), "this is not YAML: mapping values are not allowed"),
        ("a: [1, 2\n", None, "this is not YAML"),
        ("a: 'x\n", None, "this is not YAML"),
        (
            "ab: \x07\n",
            YamlPosition(1, 5),
            'the invisible character U+0007 is not taken; delete it, or write "\\u0007" in quotes',
        ),
        ("a: 1\n\ufeffb: 2\n", YamlPosition(2, 1), "the invisible character U+FEFF"),
        ("a: 1\u2028b: 2\n", YamlPosition(1, 5), "the invisible character U+2028"),
        ("a: 1\rb: 2\n", YamlPosition(1, 5), "the invisible character U+000D"),
        (b"a: 1\nbc: \xff\n", YamlPosition(2, 5), "this is not UTF-8 text"),
        ('a: "\\ud800"\n', None, ""),
        ("a: " + "9" * 5_000, YamlPosition(1, 4), "this number is too long"),
        ("a: 1e999", YamlPosition(1, 4), "this number is too large"),
    ],
)
def test_what_is_not_taken_is_refused_with_its_place(text: str | bytes, mark: YamlPosition | None, says: str) -> None:
    error = refused(text)
    assert says in error.says
    assert error.mark is not None
    assert mark is None or error.mark == mark
    assert str(error).startswith(f"flow.yaml:{error.mark.line}:{error.mark.column} cannot be read: ")


def test_a_bomb_is_refused_before_it_unfolds() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30))
    assert refused(bomb).mark == YamlPosition(1, 5)


@pytest.mark.parametrize("sign", ["[", "{a: ", "- ", "a:\n ", "? "])
def test_nesting_beyond_the_cap_is_refused_at_once(sign: str) -> None:
    deep = sign * 100_000 if "\n" not in sign else "".join(" " * n + "a:\n" for n in range(1_000))
    before = time.perf_counter()
    assert "too deeply" in refused(deep).says or "key" in refused(deep).says
    assert time.perf_counter() - before < 10


def test_nesting_up_to_the_cap_is_taken() -> None:
    deepest = DEEPEST - 1
    load("[" * deepest + "1" + "]" * deepest, "flow.yaml")
    assert refused("[" * (deepest + 1) + "1" + "]" * (deepest + 1)).mark == YamlPosition(1, DEEPEST + 1)


def test_a_file_that_is_too_large_is_not_even_parsed() -> None:
    assert "too large: 1,048,577 bytes" in refused(b"#" * (LARGEST + 1)).says
    assert load(b"a: 1\n#" + b"#" * (LARGEST - 6), "flow.yaml").plain() == {"a": 1}


def test_a_missing_library_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(Refused, match=r"uv tool install '\.\[flows\]'") as caught:
        load("a: 1", "flow.yaml")
    assert caught.value.code == "missing_extra"


PIECES = (
    "a", "b: ", "- ", "\n", "\n  ", "\n\t", "\t", " ", "[", "]", "{", "}", ",", ":", "? ", "|", ">", "|2", "'", '"',
    "&x ", "*x", "!t ", "!!int ", "%YAML 1.1", "---", "...", "#", "\\", "\\x", "\x00", "\x85", "\u2028", "\ufeff", "é",
    "💥", "1", "1_0", "1e9", ".5", "-", "+1", "~", "null", "<<: ", "@", "`", "\r", "\r\n", "steps:", "timeouts:",
)  # fmt: skip


def shaken(chance: random.Random) -> bytes:
    text = bytearray("".join(chance.choices(PIECES, k=chance.randrange(1, 40))).encode())
    if chance.random() < 0.2:
        text[chance.randrange(len(text))] = chance.randrange(256)
    return bytes(text)


@pytest.mark.parametrize("seed", range(3))
def test_no_text_leads_to_anything_but_a_tree_or_a_refusal_with_a_place(seed: int) -> None:
    chance = random.Random(seed)
    kinds = []
    for _ in range(2_000):
        text = shaken(chance)
        told = outcome(text)
        assert not isinstance(told, BadYaml) or told.mark is not None, text
        kinds.append(isinstance(told, BadYaml))
    assert 20 < sum(kinds) < 1_980


def outcome(text: bytes) -> object:
    """The tree of a text, or the refusal."""
    try:
        return load(text, "flow.yaml").plain()
    except BadYaml as error:
        return error


def test_both_parsers_understand_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    agreed = 0
    for _ in range(1_500):
        text = shaken(chance)
        seen = []
        for parser in PARSERS:
            use(monkeypatch, parser)
            seen.append(outcome(text))
        if not any(isinstance(one, BadYaml) for one in seen):  # where one of them is stricter, that is no harm
            assert seen[0] == seen[1], text
            agreed += 1
    assert agreed > 20
