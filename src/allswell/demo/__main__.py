"""Run the demo: `python -m allswell.demo [--night] [--keep DIR] [--plain]`."""

from __future__ import annotations

import argparse
import sys

from allswell.demo.night import play
from allswell.demo.story import tell
from allswell.errors import AllswellError


def main() -> int:
    """Read the command line and play."""
    options = argparse.ArgumentParser(prog="allswell.demo", description=sys.modules[play.__module__].__doc__)
    options.add_argument("--night", action="store_true", help="a small fleet and a bad night, with a timeline")
    options.add_argument("--keep", metavar="DIR", help="keep the store and the timeline in this folder")
    options.add_argument("--plain", action="store_true", help="lines instead of a live table")
    chosen = options.parse_args()
    try:
        well = play(chosen.keep, plain=chosen.plain) if chosen.night else tell(chosen.keep)
    except AllswellError as error:
        options.error(str(error))
    except KeyboardInterrupt:
        return 130
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
