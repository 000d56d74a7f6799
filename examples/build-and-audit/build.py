"""Build a page from a title and lines of history; what an audit found wrong with the last try is mended."""

import html
import os
import sys
from pathlib import Path

title, history = sys.argv[1:]
found = os.environ.get("ALLSWELL_AUDIT", "")
language = ' lang="en"' if "language" in found else ""
lines = "".join(f"<li>{html.escape(line)}</li>" for line in history.splitlines())
page = f"<!doctype html><html{language}><title>{html.escape(title)}</title><ul>{lines}</ul></html>\n"
Path("site").mkdir(exist_ok=True)
Path("site/index.html").write_text(page, encoding="utf-8")
print(f"{len(page)} bytes")
