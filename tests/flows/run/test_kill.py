"""A flow of twenty steps, killed with all its processes, then resumed: the same result, and nothing done is repeated.

`ALLSWELL_FLOW_CUTS=all` cuts at every step and in every place; `make test` takes eight of these cuts.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from allswell.domain.receipts.step import StepReceipt
from allswell.runtime.workspace.files import read
from tests.interfaces.cli.upkeep import environment, run

STEPS = 20
PLACES = ("begin", "work", "everything", "finalize", "receipt", "route", "boundary")
EIGHT = (
    "s01:begin",
    "s01:boundary",
    "s05:work",
    "s08:finalize",
    "s11:receipt",
    "s14:route",
    "s17:everything",
    "s20:boundary",
)
CUTS = (
    tuple(f"s{number:02}:{place}" for number in range(1, STEPS + 1) for place in PLACES)
    if os.environ.get("ALLSWELL_FLOW_CUTS") == "all"
    else EIGHT
)
SCRIPT = """\
echo "$1" >> ran.txt
case "$(cat cut 2>/dev/null)" in
"$1:work")
    echo half > "$1.txt"
    rm cut
    kill -9 "$(cat victim.pid)"
    sleep 30
    ;;
"$1:everything")  # the runner, the warden and this step's reaper: nobody is left to end it
    echo half > "$1.txt"
    rm cut
    echo $$ > left.pid
    kill -9 "$(cut -d ' ' -f 4 /proc/$PPID/stat)" $PPID "$(cat victim.pid)"
    sleep 60
    ;;
esac
{ cat "$2"; echo "$1 got $3"; } > "$1.txt"
echo "$1-$3" | cut -c 1-40
"""


def flow() -> str:
    """A chain of steps, each with the file and the words of the one before."""
    lines = [
        "name: chain",
        "steps:",
        "- {id: s01, run: [sh, step.sh, s01, /dev/null, begin], outputs: {text: s01.txt}}",
    ]
    for number in range(2, STEPS + 1):
        before, this = f"s{number - 1:02}", f"s{number:02}"
        values = f"'{{{{ steps.{before}.outputs.text }}}}', '{{{{ steps.{before}.stdout }}}}'"
        run_ = f"[sh, step.sh, {this}, {values}]"
        lines.append(f"- {{id: {this}, needs: {before}, run: {run_}, outputs: {{text: {this}.txt}}}}")
    return "\n".join(lines) + "\n"


def prepare(folder: Path) -> Path:
    folder.mkdir()
    (folder / "step.sh").write_text(SCRIPT)
    (folder / "flow.yaml").write_text(flow())
    return folder


def result(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("s*.txt"))}


@pytest.fixture(scope="module")
def uncut(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = prepare(tmp_path_factory.mktemp("uncut") / "flow")
    ran = run("run", "flow.yaml", "--json", cwd=folder)
    assert (ran.code, json.loads(ran.out)["verdict"]) == (0, "done"), ran.err
    made = result(folder)
    assert len(made) == STEPS
    return made


@pytest.mark.row("F11")
@pytest.mark.parametrize("where", CUTS)
def test_killed_anywhere_and_resumed_it_comes_to_the_same_and_repeats_nothing(
    tmp_path: Path, uncut: dict[str, str], where: str
) -> None:
    folder = prepare(tmp_path / "flow")
    command = [sys.executable, "-m", "tests.flows.run.victim", "flow.yaml", where]
    root = str(Path(__file__).parents[3])
    died = subprocess.run(
        command, cwd=folder, env=environment(PYTHONPATH=root), capture_output=True, text=True, check=False
    )
    assert died.returncode == -signal.SIGKILL, died.stdout + died.stderr
    step, _, place = where.partition(":")
    (name,) = [path.name for path in (folder / ".allswell" / "runs").iterdir()]
    went_on = run("resume", name, "--json", "--choose", "retry_step", cwd=folder)
    assert went_on.code == 0, went_on.out + went_on.err
    told = json.loads(went_on.out)
    assert (told["verdict"], set(told["steps"].values())) == ("done", {"done"})
    assert result(folder) == uncut
    if place == "everything":
        number = (folder / "left.pid").read_text().strip()
        assert _has_ended(number), "what nobody watched any more was ended before the step was done again"
    ran = (folder / "ran.txt").read_text().split()
    again = [] if place in ("begin", "boundary") else [step]
    assert sorted(ran) == sorted([f"s{number:02}" for number in range(1, STEPS + 1)] + again)
    receipts = list((folder / ".allswell" / "runs" / name / "chain" / "receipts").glob("*.json"))
    assert len(receipts) >= STEPS
    assert [path.name for path in receipts if read(path, StepReceipt) is None] == []


def _has_ended(number: str) -> bool:
    """Whether a process is gone, or only waits for somebody to look at its end."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
