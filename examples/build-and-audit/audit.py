"""Judge a page: exit code 0 passes it, and whatever is printed otherwise goes back to the builder."""

import sys
from pathlib import Path

page = Path(sys.argv[1]).read_text(encoding="utf-8")
wrong = [what for what, sign in (("its language", "<html lang="), ("a title", "<title>")) if sign not in page]
if wrong:
    sys.exit(f"The page does not say {' and '.join(wrong)}.")
