"""A spec as it stands in its files, with what is wrong with the way it is written."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from allswell.domain.build.component import SpecMistake, WrittenComponent


class WrittenSpec(msgspec.Struct, frozen=True):
    """What was read. Whether the names in it mean anything is looked at afterwards."""

    name: str
    components: tuple[WrittenComponent, ...] = ()
    mistakes: tuple[SpecMistake, ...] = ()
    url: str = ""


def build_name(stem: str) -> str:
    """The name of a build whose spec gives none, after its file or folder."""
    return _safe(stem) or "build"


def _safe(letters: Iterable[str]) -> str:
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "-" for letter in letters)[
        :64
    ].strip("-")
