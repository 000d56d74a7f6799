"""Flow files as commands take them: a path or standard input, read with the settings that hold here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.arithmetic.finding import Finding
    from allswell.flows.spec import Flow

STDIN = "standard input"


def read_bytes(file: str) -> bytes:
    """The content of a file that was named, up to a little more than is ever taken."""
    from allswell.flows.loading import LARGEST

    try:
        if file == "-":
            return sys.stdin.buffer.read(LARGEST + 1)
        with open(file, "rb") as opened:  # noqa: PTH123 - a name that was typed, opened once
            return opened.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Refused("no_file", f"{file!r} cannot be read: {why}", where="FILE") from None


def read_file(file: str) -> tuple[Flow, list[Finding]]:
    """The flow of a file, and what is to be announced about it."""
    from allswell.flows.arithmetic import load_flow
    from allswell.settings import load

    return load_flow(read_bytes(file), STDIN if file == "-" else file, load())
