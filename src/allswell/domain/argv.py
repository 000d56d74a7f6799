"""A command as a list of words: as it is given, or split from a text as a shell would, without being one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from allswell.errors import Refused

_OF_A_SHELL = frozenset(("|", "||", "&&", "&", ";", ">", ">>", "<", "<<", "2>&1", "2>"))


def command_of(given: object, where: str) -> tuple[str, ...]:
    """The words of a command; `Refused` for what is none, or is meant for a shell."""
    if isinstance(given, str):
        try:
            words = shlex.split(given)
        except ValueError as error:
            raise Refused("bad_command", f"{where} cannot be split into words: {error}", where=where) from None
        for word in words:
            if word in _OF_A_SHELL:
                text = f"{where} has {word!r}, which only a shell knows; ask for one: sh -c {shlex.quote(given)}"
                raise Refused("bad_command", text, where=where)
    elif isinstance(given, Sequence) and all(isinstance(word, str) for word in given):
        words = list(given)
    else:
        raise Refused("bad_command", f"{where} must be a command: a text, or a list of words", where=where)
    if not words or not words[0].strip():
        raise Refused("bad_command", f"{where} is empty: its first word names a program", where=where)
    return tuple(words)
