"""`make demo`: one story, with real processes: an agent hangs, its work is kept, comes back, and gets done.

Everything that is shown was typed just so, in a folder of its own, and can be typed again there afterwards.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import allswell
from allswell.errors import AllswellError

NAME = "write the parser"
_AGENT = """\
#!/bin/sh
# An agent, as they are: it works for a while, and then waits for something that never comes.
if [ -s parser.py ]; then
    echo "I see what I had: $(wc -l < parser.py) lines of parser.py. Going on."
    sleep 1
    echo '    return [word.strip() for word in line.split(",")]' >> parser.py
    echo "parser.py is whole"
else
    echo "reading the grammar"
    sleep 1
    printf 'def parse(line):\\n    "The words of a line."\\n' > parser.py
    echo "writing parser.py"
    sleep 1
    echo "waiting for the model"
    sleep 3600
fi
"""
_STEPS: tuple[tuple[str, tuple[str, ...], int], ...] = (
    (
        "An agent is started, and hangs. Three seconds without progress are too many for it.",
        ("allswell", "run", "--name", NAME, "--idle", "3s", "--grace", "1s", "--", "./agent"),
        124,
    ),
    ("Before it was ended, its work was kept:", ("allswell", "diff", NAME), 0),
    ("Now the file is deleted by mistake …", ("rm", "parser.py"), 0),
    ("… and brought back:", ("allswell", "recover", NAME, "--apply"), 0),
    ("The same task goes on where it was:", ("allswell", "run", "--resume", NAME), 0),
    ("And now?", ("allswell",), 0),
)


def tell(keep: str | None = None) -> bool:
    """Play the story in a folder of its own; whether it came out as it should."""
    folder = _folder(keep)
    well = True
    for words, command, code in _STEPS:
        print(f"\n{_painted(words, '1')}\n{_painted('$ ' + shlex.join(command), '36')}", flush=True)
        well = _type(command, folder) == code and well
    whole = (folder / "parser.py").read_text().count("\n") == 3
    well = well and whole
    ending = (
        "hung, noticed, kept, lost, brought back, done" if well else "this is not as it should be; please report it"
    )
    verdict, colour = ("All's well", "1;32") if well else ("All is not well", "1;31")
    print(f"\n{_painted(verdict, colour)}: {ending}.")
    print(f"Everything is still there. To look at it, type:\n  {_painted(_look_again(folder), '36')}", flush=True)
    return well


def _look_again(folder: Path) -> str:
    """A command that works as it is typed, wherever `allswell` is installed and whatever is on PATH."""
    beside = Path(sys.executable).with_name("allswell")
    on_path = shutil.which("allswell")
    lent = "UV" in os.environ  # `uvx` and `uv run` put it on PATH only for as long as the demo runs
    if on_path and not lent and beside.exists() and Path(on_path).samefile(beside):
        program = ["allswell"]
    else:
        program = [str(beside)] if beside.exists() else [sys.executable, "-m", "allswell"]
    return f"cd {shlex.quote(str(folder))} && {shlex.join([*program, 'why', NAME])}"


def _folder(keep: str | None) -> Path:
    try:
        if keep:
            folder = Path(keep).resolve()
            folder.mkdir(parents=True, exist_ok=True)
        else:
            folder = Path(tempfile.mkdtemp(prefix="allswell-demo-"))
        agent = folder / "agent"
        is_ours = agent.is_file() and not agent.is_symlink() and agent.read_bytes() == _AGENT.encode()
        if not is_ours and any(os.path.lexists(folder / name) for name in ("agent", "parser.py")):
            text = f"{keep} has a file agent or parser.py that no demo has made; name another folder"
            raise allswell.Refused("bad_folder", text, where="--keep")
        agent.write_text(_AGENT)
        agent.chmod(0o755)
        (folder / "parser.py").unlink(missing_ok=True)
    except OSError as error:
        raise allswell.Refused("bad_folder", f"{keep} cannot be used: {error.strerror}", where="--keep") from None
    if shutil.which("git"):  # without it, work is kept all the same
        subprocess.run(["git", "init", "--quiet", "."], cwd=folder, check=False, stderr=subprocess.DEVNULL)
    return folder


def _type(command: tuple[str, ...], folder: Path) -> int:
    words = [sys.executable, "-P", "-m", *command] if command[0] == "allswell" else list(command)
    env = {name: value for name, value in os.environ.items() if not name.startswith("ALLSWELL_")}
    return subprocess.run(words, cwd=folder, env=env, stdin=subprocess.DEVNULL, check=False).returncode


def _painted(text: str, style: str) -> str:
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[{style}m{text}\x1b[0m"


def main() -> int:
    """Read the command line and play."""
    options = argparse.ArgumentParser(prog="allswell.demo", description=__doc__)
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
