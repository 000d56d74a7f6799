"""Where the key for a server comes from: the environment, or a file that nobody else can read. Never a command line.

`ALLSWELL_KEY` is the key itself, `ALLSWELL_KEY_FILE` names a file with it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from allswell.domain.key import parts_of
from allswell.errors import Refused

VARIABLE = "ALLSWELL_KEY"
FILE_VARIABLE = "ALLSWELL_KEY_FILE"
_MOST = 1_000


def key_from(environ: Mapping[str, str]) -> str:
    """The key to show; `Refused` says what is wrong with what there is."""
    shown = environ.get(VARIABLE, "").strip()
    where = VARIABLE
    if not shown and environ.get(FILE_VARIABLE):
        shown, where = _read(Path(environ[FILE_VARIABLE])), FILE_VARIABLE
    if not shown:
        text = f"a server wants a key: set {VARIABLE}, or {FILE_VARIABLE} to a file that only you can read"
        raise Refused("no_key", text, where=VARIABLE, hint="whoever has the store makes one: `allswell key create`")
    if parts_of(shown) is None:
        raise Refused("bad_key", f"what {where} holds is no key: one begins with awk_", where=where)
    return shown


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if about.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(about.st_mode) & 0o077:
                text = f"{path} can be read by others; `chmod 600` it"
                raise Refused("open_key", text, where=FILE_VARIABLE)
            return file.read(_MOST).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no text"
        raise Refused("no_key", f"{path} cannot be read: {why}", where=FILE_VARIABLE) from None
