"""One reader of command lines: what a command declares is understood however it is spelt, and mistakes are told."""

from __future__ import annotations

import random
import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allswell.errors import Refused
from allswell.interfaces.cli import app, help_pages
from allswell.interfaces.cli.options import NUMBER, TIME, WHEN, Argument, Json, Option, Parameter, Rest, parameters
from allswell.interfaces.cli.parser import read
from allswell.interfaces.cli.registry import LOOKING, UPKEEP, CliCommand, Commands
from allswell.interfaces.cli.rendering import width_of
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.upkeep import at_terminal

EVERY = app.commands().named
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", "-", "--", "-5", "--json", "-n", "--help", "--store=x", "=", "a=b", "-x y", "'", '"', "\n"]),
)


def everything(
    first: Annotated[str, Argument(metavar="FIRST", help="A word.")],
    number: Annotated[int, Argument(metavar="NUMBER", help="How many.")],
    last: Annotated[str, Argument(metavar="LAST", help="A word.")] = "none",
    *,
    some: Annotated[list[str] | None, Option("--some", "-s", metavar="X", help="Words.")] = None,
    share: Annotated[float | None, Option("--share", "-p", metavar="S", min=0, max=1, help="A share.")] = None,
    way: Annotated[Literal["skip", "run"] | None, Option("--way", "-w", help="A choice.")] = None,
    limit: Annotated[str | None, Option("--limit", metavar=TIME, help="A length of time.")] = None,
    since: Annotated[str | None, Option("--since", metavar=WHEN, help="A moment.")] = None,
    shown: Annotated[str | None, Option("--shown", metavar="AS", bare="much", help="With or without.")] = None,
    loud: Annotated[bool, Option("--loud", "-l", help="A flag.")] = False,
    all_: Annotated[bool, Option("--all", "-a", help="Another.")] = False,
    json: Json = False,
    rest: Annotated[list[str] | None, Rest(metavar="-- COMMAND…", help="What is run.")] = None,
) -> None:
    """Take one of each kind.

    There is more to say.
    """


EXAMPLE = CliCommand("everything", everything, LOOKING, ())
COMMANDS = [EXAMPLE, *EVERY.values()]


def values(one: Parameter) -> st.SearchStrategy[Any]:
    """What could be given to a parameter."""
    if one.declared.rest or (one.listed and one.kind is str):
        return st.lists(TEXTS, min_size=0 if one.declared.rest else 1, max_size=3)
    if one.flag:
        return st.just(True)
    if one.choices:
        return st.sampled_from(one.choices)
    least, most = one.declared.min, one.declared.max
    if one.kind is int:
        return st.integers(-(10**17) if least is None else int(least), 10**17 if most is None else int(most))
    if one.kind is float:
        return st.floats(least, most, allow_nan=False, allow_infinity=False)
    if one.declared.bare is not None:
        return st.one_of(st.just(one.declared.bare), TEXTS)
    return TEXTS.filter(lambda text: not NUMBER.fullmatch(text.strip())) if one.timed else TEXTS


def spelt(chance: random.Random, one: Parameter, value: object) -> list[str]:
    """An option as somebody may type it."""
    names = [name for name in one.declared.names if chance.random() < 0.7] or list(one.declared.names)
    name = chance.choice(names)
    if one.flag:
        return [name]
    words: list[str] = []
    for text in value if isinstance(value, list) else [repr(value) if isinstance(value, float) else str(value)]:
        ways = [[f"{name}={text}"], *([] if one.declared.bare is not None else [[name, text]])]
        if one.declared.bare == text:
            ways = [[name]]
        if not name.startswith("--") and text and not text.startswith("=") and f"{name}{text}" != "-it":
            ways.append([f"{name}{text}"])
        words += chance.choice(ways)
    return words


def line(chance: random.Random, known: list[Parameter], chosen: dict[str, Any]) -> list[str]:
    """Values as somebody may type them: options anywhere, arguments in their order, a dash where it needs `--`."""
    options = [spelt(chance, one, chosen[one.name]) for one in known if one.declared.names and one.name in chosen]
    rest = next((one for one in known if one.declared.rest and one.name in chosen), None)
    takes_rest = any(one.declared.rest for one in known)
    given_by_place = [chosen[one.name] for one in known if one.placed and one.name in chosen]
    places = [str(word) for value in given_by_place for word in (value if isinstance(value, list) else [value])]
    dashed = not takes_rest and any(word.startswith("-") for word in places)
    chance.shuffle(options)
    words: list[str] = []
    before = [] if dashed else [[word] for word in places]
    while options or before:
        words += (options if options and (not before or chance.random() < 0.5) else before).pop(0)
    if dashed:
        words += ["--", *places]
    return [*words, "--", *chosen[rest.name]] if rest is not None else words


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_what_is_declared_is_read_back_however_it_is_spelt(
    command: CliCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TASK", "TOKEN", "AGENT"):
        monkeypatch.delenv(f"ALLSWELL_{name}", raising=False)
    known = parameters(command.function)
    takes_rest = any(one.declared.rest for one in known)

    @settings(max_examples=200 if command is EXAMPLE else 25, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        chosen: dict[str, Any] = {}
        full = True
        for one in known:
            if one.required or (data.draw(st.booleans()) and (full or not one.placed)):
                value = data.draw(values(one))
                if one.placed and takes_rest and str(value).startswith("-") and one.kind is str:
                    value = f"x{value}"  # behind `--` stands something else, so it cannot be given
                chosen[one.name] = value
            elif one.placed:
                full = False  # what comes behind it cannot be given
        words = line(data.draw(st.randoms(use_true_random=False)), known, chosen)
        assert read(command, words) == {one.name: chosen.get(one.name, one.default) for one in known}, words

    check()


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "typed, where, text",
    [
        ("a 1 --lod", "--lod", "no such option: --lod; did you mean --loud?"),
        ("a 1 --lou", "--lou", "no such option: --lou; did you mean --loud?"),  # abbreviations are not guessed
        ("a 1 --nothing-like-it", "--nothing-like-it", "no such option: --nothing-like-it"),
        ("a 1 -z", "-z", "no such option: -z"),
        ("a 1 -json", "-json", "no such option: -json; did you mean --json?"),
        ("a 1 -lzx", "-lzx", "no such option: -lzx"),
        ("a 1 b more", "more", "unexpected argument 'more'"),
        ("a 1 --share", "--share", "--share needs a value: --share S"),
        ("a 1 -ls", "-s", "-s needs a value: -s X"),
        ("a 1 --loud=yes", "--loud", "--loud takes no value"),
        ("a 1 --share x", "--share", "invalid value for '--share': it must be a number from 0 to 1, not 'x'"),
        ("a 1 -p 7", "-p", "invalid value for '-p': it must be a number from 0 to 1, not '7'"),
        ("a 1 --share nan", "--share", "invalid value for '--share': it must be a number from 0 to 1, not 'nan'"),
        ("a 1 --way stop", "--way", "invalid value for '--way': it must be one of skip, run, not 'stop'"),
        ("a x", "NUMBER", "invalid value for 'NUMBER': it must be a whole number of at most 18 digits, not 'x'"),
        ("a १", "NUMBER", "invalid value for 'NUMBER': it must be a whole number of at most 18 digits, not '१'"),
        ("a", "NUMBER", "NUMBER is missing: `allswell everything [OPTIONS] FIRST NUMBER [LAST] [-- COMMAND…]`"),
        ("", "FIRST", "FIRST and NUMBER are missing: "),
        (
            "a 1 --limit 900000",
            "--limit",
            "invalid value for '--limit': seconds or milliseconds? Write 900000s or 900000ms",
        ),
    ],
)
def test_a_mistake_says_what_where_and_what_to_do(typed: str, where: str, text: str) -> None:
    with pytest.raises(Refused) as caught:
        read(EXAMPLE, shlex.split(typed))
    assert (caught.value.code, caught.value.where) == ("usage", where)
    assert caught.value.message.startswith(text)
    dashes = f"put -- before the command: `allswell everything -- {shlex.join(shlex.split(typed))}`"
    assert caught.value.hint == (dashes if typed else "`allswell everything --help` lists the options")


@pytest.mark.parametrize(
    "typed, understood",
    [
        ("5", "5s"),
        (" 90 ", "90s"),
        ("0.5", "0.5s"),
        (".5", "0.5s"),
        ("10000", "10000s"),
        ("10001ms", "10001ms"),
        ("off", "off"),
    ],
)
def test_a_bare_number_is_seconds_where_options_are_read(typed: str, understood: str) -> None:
    given = read(EXAMPLE, ["a", "1", "--limit", typed, "--some", typed])
    assert given is not None
    assert (given["limit"], given["some"]) == (understood, [typed]), "and only for lengths of time"


def test_a_moment_is_so_many_seconds_away_or_milliseconds_since_1970() -> None:
    given = [read(EXAMPLE, ["a", "1", "--since", typed]) for typed in ("60", "1794905864000")]
    assert [one and one["since"] for one in given] == ["60s", "1794905864000"]


def test_help_is_shown_to_whoever_asks_for_it_however_wrong_the_rest() -> None:
    for typed in ("--help", "-h", "-lh", "a b --help", "--bogus x -h", "a 1 b c --share 7 --help -- x"):
        assert read(EXAMPLE, typed.split()) is None, typed
    assert read(EXAMPLE, ["--some", "--help", "a", "1", "--", "-h"]) is not None  # a value, and another's


def test_an_endless_value_is_not_repeated(cli: Console) -> None:
    for words in (
        ["tasks", "--limit", "9" * 6_000],
        ["9" * 6_000],
        ["tasks", "9" * 6_000],
        ["tasks", "--" + "9" * 6_000],
    ):
        said = cli(*words)
        assert said.code == 2
        assert len(said.err) < 300, said.err


def test_a_value_from_the_environment_is_spoken_of_by_its_variable(cli: Console) -> None:
    cli.submit("a")
    cli.patch.setenv("ALLSWELL_TOKEN", "x")
    said = cli("checkin")
    assert said.code == 2
    assert "invalid value for '$ALLSWELL_TOKEN': it must be a whole number of at most 18 digits, not 'x'" in said.err
    said = cli("checkin", "--token", "1", "--json")
    assert said.json["error"]["code"] == "no_task"  # what is typed holds


def test_a_negative_number_is_an_argument(cli: Console) -> None:
    cli.submit("a")
    cli.claim()
    assert cli.ok("done", "-5").out


# --- commands of several words ----------------------------------------------------------------------------------------


def noted(_which: Annotated[str, Argument(metavar="WHICH", help="Which one.")], json: Json = False) -> None:
    """Do it to one."""


@pytest.fixture
def several() -> Commands:
    every = Commands()
    every.add(LOOKING, "keys", lambda: None)
    every.add(UPKEEP, "key create", noted, "allswell key create ada")
    every.add(UPKEEP, "key list", noted)
    every.add(UPKEEP, "sinks setup notion", noted)
    every.add(LOOKING, "deliveries", noted)
    every.add(LOOKING, "deliveries retry", noted)
    return every


def test_a_command_may_have_several_words(several: Commands, cli: Console) -> None:
    cli.patch.setattr(app, "commands", lambda: several)
    found, rest = several.find(["key", "create", "ada", "--json"])
    assert found is several.get("key create")
    assert read(found, rest) == {"_which": "ada", "json": True}
    assert several.find(["deliveries", "retry", "x"])[0] is several.get("deliveries retry")
    assert several.find(["deliveries", "x"])[0] is several.get("deliveries")
    assert several.find(["key create"])[0] is None, "two words, not one with a blank"
    assert cli("key", "create", "ada").code == 0
    assert "WHICH is missing: `allswell key create [OPTIONS] WHICH`" in cli("key", "create").err
    assert "Usage: allswell key create [OPTIONS] WHICH" in cli.ok("key", "create", "--help").out


def test_commands_that_begin_alike_have_a_page_together(several: Commands, cli: Console) -> None:
    cli.patch.setattr(app, "commands", lambda: several)
    page = cli.ok("key", "--help").out
    assert page.startswith("Usage: allswell key COMMAND …\n")
    assert "\n  key create  Do it to one.\n  key list    Do it to one.\n" in page
    assert "deliveries" not in page
    assert "\n  deliveries retry  Do it to one.\n" in cli.ok("deliveries", "-h").out
    assert "sinks setup notion" in cli.ok("sinks", "setup", "--help").out
    whole = cli.ok("help", "all").out
    assert all(f"\n  {name} " in whole for name in several.names)


def test_a_command_that_is_not_there_is_told_with_the_nearest(several: Commands, cli: Console) -> None:
    cli.patch.setattr(app, "commands", lambda: several)
    assert "no such command: 'kyes'; did you mean 'keys'? `allswell help all` lists them" in cli("kyes").err
    said = cli("key", "crate", "ada")
    assert said.code == 2
    assert "no such command: 'key crate'; did you mean 'key create'? `allswell key --help` lists them" in said.err
    said = cli("key", "--json")
    assert (said.code, said.json["error"]["code"], said.err) == (2, "usage", "")
    assert "'key' needs another word; `allswell key create` or `allswell key list`" in cli("key").err
    assert "'key create' is several words: leave out the quotes" in cli("key create").err
    assert "no such command: 'sinks setup slack'" in cli("sinks", "setup", "slack").err
    assert "no such command: 'zzz'; `allswell help all` lists them" in cli("zzz", "--help").err
    assert (
        "--version must stand after the command; `allswell key list --version …`" in cli("--version", "key", "list").err
    )
    assert "no such command: 'nonsense'" in cli("--version", "nonsense").err


def test_the_list_of_commands_is_what_their_modules_declare() -> None:
    every = app.commands()
    names = every.names
    assert list(every.named) == names == every.names, "a module declares what the list does not have"


# --- help -------------------------------------------------------------------------------------------------------------


def test_a_page_tells_all_that_is_declared() -> None:
    page = help_pages.of_one(Commands(), EXAMPLE)
    for text in (
        "Usage: allswell everything [OPTIONS] FIRST NUMBER [LAST] [-- COMMAND…]\n\n  Take one of each kind.\n\n",
        "\n\n  There is more to say.\n\n",
        "\nArguments:\n  FIRST        A word.\n  NUMBER       How many.\n  LAST         A word. [default: none]\n",
        "\n  -s, --some X        Words.\n",
        "\n  -p, --share S       A share. [from 0 to 1]\n",
        "\n  -w, --way skip|run  A choice.\n",
        "\n      --shown[=AS]    With or without.\n",
        "\n  -l, --loud          A flag.\n",
        "\n      --json          Print JSON.\n  -h, --help          Show this page.\n",
    ):
        assert text in page, page
    done = help_pages.of_one(Commands(), EVERY["done"])
    assert "[environment: ALLSWELL_TOKEN]" in " ".join(done.split())


@pytest.mark.parametrize("columns", [80, 120])
def test_a_page_at_a_terminal_fits_and_has_colour_where_it_is_wanted(tmp_path: Path, columns: int) -> None:
    page = at_terminal("run", "--help", cwd=tmp_path, columns=columns).out
    without = at_terminal("run", "--help", cwd=tmp_path, columns=columns, NO_COLOR="1").out
    assert "\x1b[1mOptions:\x1b[0m\n" in page
    assert re.sub(r"\x1b\[[0-9;]*m", "", page) == without
    assert 70 < max(map(width_of, without.splitlines())) <= min(columns, 100)


def test_other_names_are_taken_and_unknown_ones_get_the_nearest(cli: Console) -> None:
    assert cli("status").out == cli().out
    assert cli("status", "--json").json["there"] is False
    cli.submit("paint")
    assert cli("ps").out == cli("agents").out
    assert cli("help", "tasks").out == cli("tasks", "--help").out
    assert "`ps` is `allswell agents`" in " ".join(cli("help", "all").out.split())
    for typed, meant in (("ls", "'tasks'"), ("kill", "'cancel'"), ("statsu", "'status'"), ("taks", "'tasks'")):
        said = cli(typed)
        assert said.code == 2
        assert said.err.startswith(f"allswell: no such command: '{typed}'; did you mean {meant}"), said.err
