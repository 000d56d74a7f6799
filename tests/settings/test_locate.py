"""The place of every name in a TOML file, whatever stands around it."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allswell.settings.sources import TextPosition, locate
from tests.properties.budget import DETERMINISTIC


def test_keys_of_all_shapes_are_found() -> None:
    text = '''# agent_timeout = "no"
agent_timeout = "15m" # idle = 3
  idle   = '1m'
note = """
stall_threshold = 9
"""
list = [
  "timeouts = 1", # [pace]
  { inner = 1 }, [2, 3],
]
retry = { backoff = "2s", "jitter" = 0.5, more = { deep = 1 } }

[ timeouts ]
step = 1
"llm_call" = 2
[roles."night owl"]
retry.backoff = 1979-05-27 07:32:00
[[many]]
x = '''
    text += "'''a'''' # y = 1\n"
    tomllib.loads(text)
    assert locate(text) == {
        ("agent_timeout",): TextPosition(2, 1),
        ("idle",): TextPosition(3, 3),
        ("note",): TextPosition(4, 1),
        ("list",): TextPosition(7, 1),
        ("retry",): TextPosition(11, 1),
        ("retry", "backoff"): TextPosition(11, 11),
        ("retry", "jitter"): TextPosition(11, 27),
        ("retry", "more"): TextPosition(11, 43),
        ("retry", "more", "deep"): TextPosition(11, 52),
        ("timeouts",): TextPosition(13, 3),
        ("timeouts", "step"): TextPosition(14, 1),
        ("timeouts", "llm_call"): TextPosition(15, 1),
        ("roles", "night owl"): TextPosition(16, 2),
        ("roles", "night owl", "retry", "backoff"): TextPosition(17, 1),
        ("many",): TextPosition(18, 3),
        ("many", "x"): TextPosition(19, 1),
    }


def test_a_quoted_key_is_what_it_stands_for() -> None:
    assert locate(r'"a\u0062" = 1') == {("ab",): TextPosition(1, 1)}


keys = st.text("ab-_1", min_size=1, max_size=3)
strings = st.text("ab=\"'#[]{},. \n", max_size=6)


def quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"').replace("\n", "\\n") + '"'


scalars = st.integers(0, 9).map(str) | st.sampled_from(["true", "1979-05-27 07:32:00"]) | strings.map(quoted)


@st.composite
def tables(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    values: Any = scalars | st.lists(scalars, max_size=3)
    if depth:
        values = values | tables(depth - 1)
    return draw(st.dictionaries(keys, values, max_size=3))


def written(value: Any) -> str:  # noqa: ANN401 - a value of TOML
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {written(inner)}' for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ",\n # ]\n".join(value) + "]"
    return str(value)


def paths(table: dict[str, Any], above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found = set()
    for key, value in table.items():
        found |= {(*above, key)} | (paths(value, (*above, key)) if isinstance(value, dict) else set())
    return found


@DETERMINISTIC
@given(tables(), st.booleans())
def test_every_key_that_toml_has_is_found_where_it_stands(table: dict[str, Any], headed: bool) -> None:
    text = ""
    plain_first = sorted(table.items(), key=lambda item: isinstance(item[1], dict))
    for key, value in plain_first:
        if headed and isinstance(value, dict):
            text += f'[ "{key}" ]\n' + "".join(f'"{one}" = {written(inner)} # x = 1\n' for one, inner in value.items())
        else:
            text += f'"{key}" = {written(value)}\n\n'
    found = locate(text)
    assert set(found) == paths(tomllib.loads(text))
    lines = text.split("\n")
    for path, spot in found.items():
        assert lines[spot.line - 1][spot.column - 1 :].startswith(f'"{path[-1]}"')


@DETERMINISTIC
@given(st.text("ab=\"'#[]{},.\\ \n\t", max_size=60))
def test_what_is_no_toml_is_passed_over_without_harm(text: str) -> None:
    found = locate(text)
    try:
        wanted = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    assert {path[0] for path in found} == set(wanted)
