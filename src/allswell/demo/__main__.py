"""Run the demo: `python -m allswell.demo [--keep DIR]`."""

from __future__ import annotations

import argparse
import sys

from allswell.demo import tell
from allswell.errors import AllswellError


def main() -> int:
    """Read the command line and play."""
    options = argparse.ArgumentParser(prog="allswell.demo", description=sys.modules[tell.__module__].__doc__)
    options.add_argument("--keep", metavar="DIR", help="keep the store and the work in this folder")
    chosen = options.parse_args()
    try:
        well = tell(chosen.keep)
    except AllswellError as error:
        options.error(str(error))
    except KeyboardInterrupt:
        return 130
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
