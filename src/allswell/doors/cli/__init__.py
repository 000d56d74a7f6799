"""The command line: `allswell`, thin and quick to start.

Nothing heavy is imported before it is needed. `allswell --help` prints a page that was rendered when the package was
built up (`help.txt`, held to the commands by a test), so asking what there is costs next to nothing.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The `allswell` command."""
    if sys.argv[1:] in (["--help"], ["-h"]):
        with open(os.path.join(os.path.dirname(__file__), "help.txt"), encoding="utf-8") as page:  # noqa: PTH118, PTH120, PTH123 - pathlib costs more than all the rest
            sys.stdout.write(page.read())
        return
    if sys.argv[1:2] == ["run"]:
        import gc

        gc.disable()  # until everything is imported: there is nothing to collect, and looking for it is a tenth of it
    _import_msgspec()
    from allswell.doors.cli.app import run

    sys.exit(run())


def _import_msgspec() -> None:
    """Import it without typing_extensions, which it takes where it is installed and does not need: an eighth of all."""
    unknown = "typing_extensions" not in sys.modules
    if unknown:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # as Python has it for what must not be imported
    import msgspec  # noqa: F401

    if unknown:
        del sys.modules["typing_extensions"]  # Typer and others may have it
