"""Starting fast: what is not imported, and how long it takes.

Times depend on the machine; what is imported does not. So the imports are held exactly, and the times with slack.
"""

import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from allswell.interfaces.cli import app
from allswell.interfaces.cli.registry import FIRST_DAY
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.upkeep import environment, run

HEAVY = (
    "asyncio",
    "argparse",
    "typing_extensions",
    "inspect",
    "rich",
    "pydantic",
    "mcp",
    "importlib.resources",
    "hashlib",
    "allswell.engine.engine",
)


def imported(*args: str) -> list[str]:
    """Which of the heavy modules a command has imported when it ends."""
    script = f"import sys; sys.argv[1:] = {args!r}\nfrom allswell.interfaces.cli import main\n"
    script += f"try: main()\nfinally: print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True)
    return done.stderr.split()


def test_help_needs_little(tmp_path: Path) -> None:
    assert imported("--help") == []
    said = run("--help", cwd=tmp_path)
    assert (said.code, said.err) == (0, "")
    assert all(f"\n  {name} " in said.out for name in FIRST_DAY)
    listed = run("help", "all", cwd=tmp_path).out
    assert all(f"\n  {name} " in listed for name in app.commands().names)
    assert run("-h", cwd=tmp_path).out == said.out


def test_every_command_has_a_page(cli: Console) -> None:
    for command in app.commands().named.values():
        said = cli(*command.name.split(), "--help")
        assert said.code == 0
        assert f"Usage: allswell {command.name}" in said.out
        assert ("Examples:" in said.out) == bool(command.examples)


def test_who_only_looks_needs_little(cli: Console) -> None:
    id_ = cli.submit("light")
    for command in (
        ("tasks",),
        ("tasks", "--json"),
        ("show", id_),
        ("why", id_),
        ("questions",),
        ("runs",),
        ("events",),
    ):
        assert imported(*command) == [], command


def test_a_command_imports_its_own_module_only(cli: Console) -> None:
    others = {
        f"allswell.interfaces.cli.{name}"
        for name in (
            "commands.tasks",
            "commands.work",
            "commands.check",
            "commands.fleet",
            "commands.completion",
            "help_pages",
        )
    }
    script = "import sys\nfrom allswell.interfaces.cli import app\napp.run(['config', 'store'])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True)
    assert others & set(done.stdout.split()) == set()


def test_the_package_gives_its_names_when_they_are_asked_for() -> None:
    script = (
        "import sys, allswell\n"
        "assert 'allswell.app' not in sys.modules and 'asyncio' not in sys.modules\n"
        "assert set(allswell.__all__) <= set(dir(allswell))\n"
        "for name in allswell.__all__: assert getattr(allswell, name) is getattr(allswell, name)\n"
        "from allswell import *\n"
        "assert issubclass(LeaseLost, AllswellError) and not hasattr(allswell, 'nonsense')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_only_in_front_of_a_command_does_asyncio_do_without_tls(tmp_path: Path) -> None:
    """A flow's functions run in our own process, and may call whom they like."""
    script = (
        "import sys\n"
        "from allswell.interfaces import cli\n"
        "sys.argv = ['allswell', *sys.argv[1:]]\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "import asyncio.base_events as loops\n"
        "print('without' if loops.ssl is None else 'with')\n"
    )
    for words, said in ((["run", "--", "true"], "without"), (["run", "--resume", "t_nothing"], "with")):
        done = subprocess.run(
            [sys.executable, "-c", script, *words],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split()[-1] == said


# --- measured ---------------------------------------------------------------------------------------------------------


def seconds(*command: str, cwd: Path) -> float:
    # Modules are compiled once, as they are where the package is installed; this session may forbid that.
    env = {**environment(), "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(cwd / "compiled")}
    began = _used()
    subprocess.run([sys.executable, *command], cwd=cwd, env=env, stdout=subprocess.DEVNULL, check=True)
    return _used() - began


def _used() -> float:
    """The processor's time that children of ours have used: a clock would count what else the machine does."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def ratio(cwd: Path, *command: str, rounds: int = 7) -> float:
    """How many times the processor's time of an empty Python a command takes: the median of interleaved runs."""
    seconds(*command, cwd=cwd)
    return statistics.median(seconds(*command, cwd=cwd) / seconds("-c", "pass", cwd=cwd) for _ in range(rounds))


@pytest.mark.realtime
@pytest.mark.alone
def test_help_starts_at_once(tmp_path: Path) -> None:
    assert ratio(tmp_path, "-m", "allswell", "--help") < 6


@pytest.mark.realtime
@pytest.mark.alone
def test_standing_in_front_of_a_command_costs_little(tmp_path: Path) -> None:
    # 13 to 17 where this was written, which is 170 to 220 ms; 250 ms were 19. `bench/rescue.py` shows more.
    assert ratio(tmp_path, "-m", "allswell", "run", "--", "true") < 26


@pytest.mark.realtime
@pytest.mark.alone
def test_looking_at_a_hundred_thousand_tasks_starts_at_once(cli: Console) -> None:
    given = "".join(f'{{"name": "number {number}"}}\n' for number in range(100_000))
    needs = ", ".join(f'"number {number}"' for number in range(40_000, 40_500))
    ids = cli.ok("submit", "-", stdin=given + f'{{"name": "gather", "needs": [{needs}]}}').out.split()
    for command in (("tasks",), ("show", ids[50_000]), ("show", "number 70000"), ("why", ids[3]), ("why", "gather")):
        # Alone and interleaved with 7c91ad26: `tasks` 8.9 times an empty Python (7.8 then), `why` 10.0 (7.8); 12 are
        # 150 ms. What was added: whether the folder is trusted (6 ms), and modules that hold more. `bench/start.py`.
        assert ratio(cli.folder, "-m", "allswell", *command) < 12, command


INTERRUPTED = """\
import builtins, os, signal, sys
found, real = sys.argv.pop(1), builtins.__import__
def interrupt(name, *args, **kwargs):
    if name == found:
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *args, **kwargs)
builtins.__import__ = interrupt
from allswell.interfaces.cli import main
main()
"""


def test_an_interrupt_is_minded_before_much_is_imported() -> None:
    """What Python and pip's script import before us is not ours to mend; what we import is next to nothing."""
    script = (
        "import re, sys; before = set(sys.modules); import allswell.interfaces.cli; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True)
    others = {name for name in done.stdout.split() if not name.startswith("allswell")}
    assert others <= {"__future__", "signal", "types"}


@pytest.mark.parametrize("module", ["msgspec", "allswell.interfaces.cli.app", "asyncio"])
def test_an_interrupt_while_it_starts_is_quiet(tmp_path: Path, module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, "submit", "a"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
