"""Reading a command line by what its command declares: one reader, which says what is wrong where something is.

The rules are those of getopt_long, without guesses. An option's value is the next word, whatever it looks like, or what
stands behind `=` (one that can be left out stands only there); one letter takes it without a blank as well (`-n5`), and
letters without values may stand together. Options and arguments come in any order. A long name is written in full.
Behind `--` everything is an argument, or what the command declares as its `Rest`. A negative number is an argument,
since no option is a digit.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from allswell.domain.values import nearest
from allswell.errors import Refused
from allswell.interfaces.cli.options import NUMBER, Parameter, Value, parameters
from allswell.interfaces.cli.registry import LONGEST, CliCommand
from allswell.interfaces.cli.rendering import cut

HELP = ("-h", "--help")


class ParsedToken(NamedTuple):
    """A piece of a line: an option with what was given to it, a word by its place, or `--` with the words behind it."""

    kind: Literal["option", "unknown", "help", "place", "rest"]
    word: str
    option: Parameter | None = None
    text: str | None = None
    words: tuple[str, ...] = ()


def tokens(known: Sequence[Parameter], words: Sequence[str]) -> Iterator[ParsedToken]:
    """What a line is made of; an option that lacks its value has none."""
    named = {name: one for one in known for name in one.declared.names}
    takes_rest = any(one.declared.rest for one in known)
    rest = iter(words)
    for word in rest:
        if word == "--":
            behind = tuple(rest)
            yield from (
                [ParsedToken("rest", word, words=behind)]
                if takes_rest
                else [ParsedToken("place", one) for one in behind]
            )
        elif word in HELP:
            yield ParsedToken("help", word)
        elif word == "-" or not word.startswith("-") or NUMBER.fullmatch(word):
            yield ParsedToken("place", word)
        elif word in named and named[word].flag:  # -it, which is one name
            yield ParsedToken("option", word, named[word])
        elif word.startswith("--"):
            name, sign, text = word.partition("=")
            option = named.get(name)
            if option is None:
                yield ParsedToken("unknown", name)
            else:
                given = text if sign else _behind(option, rest)
                yield ParsedToken("option", name, option, given)
        else:
            yield from _letters(word, named, rest)


def _behind(option: Parameter, rest: Iterator[str]) -> str | None:
    """The value of an option that was written without `=`."""
    if option.flag or option.declared.bare is not None:
        return option.declared.bare
    return next(rest, None)


def _letters(word: str, named: dict[str, Parameter], rest: Iterator[str]) -> Iterator[ParsedToken]:
    for place, letter in enumerate(word[1:], 2):
        name = f"-{letter}"
        option = named.get(name)
        if name in HELP:
            yield ParsedToken("help", name)
        elif option is None:
            yield ParsedToken("unknown", word)
            return
        elif option.flag:
            yield ParsedToken("option", name, option)
        else:
            glued = word[place:].removeprefix("=")
            yield ParsedToken("option", name, option, glued if word[place:] else next(rest, None))
            return


def read(command: CliCommand, words: Sequence[str]) -> dict[str, object] | None:
    """What to call a command with, or None where its help is asked for."""
    known = parameters(command.function)
    try:
        given = _given(command, known, words)
    except Refused as wrong:
        hint = _dashes(command, known, words) or f"`{command.path} --help` lists the options"
        raise Refused(wrong.code, wrong.message, where=wrong.where, hint=hint) from None
    return None if given is None else {one.name: given.get(one.name, one.default) for one in known}


def _dashes(command: CliCommand, known: Sequence[Parameter], words: Sequence[str]) -> str:
    """The same line with `--` before the command that it is to run, where that was left out; nothing elsewhere."""
    if "--" in words or not any(one.declared.rest for one in known):
        return ""
    first = next((token.word for token in tokens(known, words) if token.kind == "place"), None)
    if first is None or first == "-" or first.endswith((".yaml", ".yml")):
        return ""

    at = list(words).index(first)
    line = shlex.join([*command.path.split(), *words[:at], "--", *words[at:]])
    return f"put -- before the command: `{cut(line, 4 * LONGEST)}`"


def usage(command: CliCommand, known: Sequence[Parameter]) -> str:
    """How a command is typed."""
    places = [one.metavar if one.required else f"[{one.metavar}]" for one in known if not one.declared.names]
    needed = [_as_typed(one) for one in known if one.required and one.declared.names]
    return " ".join([command.path, "[OPTIONS]", *places, *needed])


def _as_typed(one: Parameter) -> str:
    """A parameter as it is typed: `--queue NAME`, or `NAME` at its place."""
    return " ".join([*one.declared.names[:1], one.metavar])


def _given(command: CliCommand, known: Sequence[Parameter], words: Sequence[str]) -> dict[str, Value] | None:
    places = [one for one in known if one.placed]
    given: dict[str, Value] = {}
    seen = list(tokens(known, words))
    if any(token.kind == "help" for token in seen):
        return None  # whatever else there is: who asks for help may have typed something wrong
    for kind, word, option, text, behind in seen:
        if kind == "rest":
            given |= {one.name: list(behind) for one in known if one.declared.rest}
        elif kind == "place":
            if not places:
                raise _unexpected(command, known, word)
            place = places[0] if places[0].listed else places.pop(0)
            value = _value(place, word, place.title)
            before = given.get(place.name)
            given[place.name] = [*(before if isinstance(before, list) else ()), word] if place.listed else value
        elif option is None:
            raise _unknown(known, word)
        else:
            _take(given, option, word, text)
    _add_variables(given, known)
    missing = [_as_typed(one) for one in known if one.required and one.name not in given]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        text = f"{' and '.join(missing)} {are} missing: `{usage(command, known)}`"
        raise Refused("usage", text, where=missing[0])
    return given


def _add_variables(given: dict[str, Value], known: Sequence[Parameter]) -> None:
    """What was not typed, and stands in the environment."""
    for one in known:
        text = os.environ.get(one.declared.envvar) if one.declared.envvar else None
        if text and one.name not in given:
            given[one.name] = _value(one, text, f"${one.declared.envvar}")


def _take(given: dict[str, Value], option: Parameter, word: str, text: str | None) -> None:
    if option.flag:
        if text is not None:
            raise Refused("usage", f"{word} takes no value", where=word)
        given[option.name] = True
    elif text is None:
        raise Refused("usage", f"{word} needs a value: {word} {option.metavar}", where=word)
    elif option.listed:
        before = given.get(option.name)
        given[option.name] = [*(before if isinstance(before, list) else ()), str(_value(option, text, word))]
    else:
        given[option.name] = _value(option, text, word, typed=True)


def _value(one: Parameter, text: str, title: str, *, typed: bool = False) -> Value:
    try:
        return one.value(one.typed(text) if typed else text)
    except ValueError as wrong:
        raise Refused("usage", f"invalid value for '{title}': {wrong}", where=title) from None


def _unknown(known: Sequence[Parameter], word: str) -> Refused:
    names = [name[2:] for one in known for name in one.declared.names if name.startswith("--")]
    meant = nearest(word.lstrip("-"), [*names, "help"]) if len(word) > 2 else None
    if meant:
        more = f"; did you mean --{meant}?"
    else:
        told = word.startswith("--") or len(word) == 2 or any(one.declared.rest for one in known)
        more = "" if told else " (put -- before a text that begins with a dash)"
    return Refused("usage", f"no such option: {cut(word, LONGEST)}{more}", where=word)


def _unexpected(command: CliCommand, known: Sequence[Parameter], word: str) -> Refused:
    takes = " and ".join(one.metavar for one in known if one.placed)
    rest = any(one.declared.rest for one in known)
    more = "" if rest else f": `{command.path}` takes {takes or 'none'}"
    return Refused("usage", f"unexpected argument {cut(word, LONGEST)!r}{more}", where=word)
