"""Templates of hooks: places for fields, and nothing else."""

import pytest

from allswell.domain.notify.spec import HookSpec, wrong_with_hook
from allswell.domain.values import filled, wrong_with_template
from allswell.errors import Refused

BODY = {"data": {"service": "web", "count": 3, "live": True, "hosts": ["a", {"name": "b"}], "odd": "{data.count}"}}


@pytest.mark.parametrize(
    "template, text",
    [
        ("deploy {data.service}", "deploy web"),
        ("{data.count} of {data.hosts.1.name}, {data.live}", "3 of b, true"),
        ("{{literally}} {data.hosts.0}", "{literally} a"),
        ("{data.odd}", "{data.count}"),  # what a field says is text, never a template
        ("", ""),
    ],
)
def test_fields_stand_in_their_places(template: str, text: str) -> None:
    assert wrong_with_template(template) == ""
    assert filled(template, BODY, where="here") == text


@pytest.mark.parametrize("template", ["{", "a } b", "{data.}", "{data.service!r}", "{data[0]}", "{}", "{data.a b}"])
def test_a_template_has_paths_and_nothing_else(template: str) -> None:
    assert wrong_with_template(template)


@pytest.mark.parametrize(
    "path", ["data.nothing", "data.hosts.7", "data.hosts", "data.service.x", "other", "data.hosts.-1"]
)
def test_what_is_not_there_is_told(path: str) -> None:
    with pytest.raises(Refused, match=path.replace(".", r"\.")):
        filled(f"x {{{path}}}", BODY, where="here")
    with pytest.raises(Refused, match="letters"):
        filled("{a}", {"a": "x" * 3_000}, where="here")


@pytest.mark.parametrize(
    "given, field, text",
    [
        ({}, "secret_env", "must be signed"),
        ({"secret_env": ("A",)}, "", "what becomes of it"),
        ({"secret_env": ("A",), "task": "x", "question": "q"}, "task", "either task"),
        ({"secret_env": ("A",), "question": "{id}"}, "option", "which option"),
        ({"secret_env": ("A",), "task": "x", "text": "y"}, "text", "has no text"),
        ({"secret_env": ("not a name",), "task": "x"}, "secret_env", "not a name of a variable"),
        ({"secret_env": ("A",), "task": "{x"}, "task", "brace"),
        ({"secret_env": ("A",), "task": "x", "payload": "a b"}, "payload", "path"),
        ({"secret_env": ("A",), "task": "x", "tolerance": 1}, "tolerance", "1s to 1h"),
        ({"secret_env": ("A",), "task": "x", "max_body": 0}, "max_body", "bytes"),
    ],
)
def test_a_hook_that_cannot_work_is_told(given: dict[str, object], field: str, text: str) -> None:
    spec = HookSpec(name="deploys", **given)  # type: ignore[arg-type]
    assert any(field == found and text in says for found, says in wrong_with_hook(spec, given))
