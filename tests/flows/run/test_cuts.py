"""A process that ends between any two writes leaves a folder that can be read and a run that goes on (F9)."""

import json
from pathlib import Path

import pytest

from allswell.domain.receipts.step import Capture, RunVerdict, StepReceipt, StepStatus, TimeoutRecord
from allswell.errors import Refused
from allswell.flows.run.folder import FlowEvent, find_base
from allswell.flows.run.state import look
from allswell.runtime.workspace.files import read, read_lines
from tests.flows.run.stage import CutHere, Disk, Play, flow, run, seen
from tests.flows.run.test_scenes import held_to_schema, step


def text(folder: Path) -> str:
    return (
        "timeouts: {flow: 45m}\nsteps:\n"
        + step("a", "note", x="a")
        + step("b", "slow_once", ", needs: a, outputs: [half.txt]", path=str(folder / "half.txt"))
        + step("c", "note", ", needs: b", x="{{ steps.b.result }}")
    )


def uncut(folder: Path) -> int:
    """How many writes there are, and that all of them are made."""
    disk = Disk()

    async def scene(played: Play) -> None:
        assert (await run(played)).verdict is RunVerdict.DONE
        (line,) = played.base.all_timeouts()
        assert (line.step_id, line.final_action) == ("b", "retry")

    flow(folder, text(folder), scene, disk)
    return len(disk.written)


@pytest.mark.row("F9", "F10")
def test_cut_at_every_write_everything_is_readable_and_the_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    (tmp_path / "uncut").mkdir()
    writes = uncut(tmp_path / "uncut")
    assert writes >= 12
    for at in range(writes):
        folder = tmp_path / str(at)
        folder.mkdir()
        flow(folder, text(folder), _cut, Disk(at))


async def _cut(played: Play) -> None:
    at = played.folder.name
    runner = None
    try:
        runner = await played.start()
        await runner.run()
        pytest.fail("nothing was cut")
    except CutHere:
        pass
    home = played.folder / ".allswell"
    if runner is None:  # not even the record was there: it is no run yet
        (name,) = [path.name for path in (home / "runs").iterdir()]
        with pytest.raises(Refused, match="no record"):
            find_base(home, name)
        return
    _check_readable(played, at)
    done = (await look(played.stage.watch, played.base)).done
    before = list(seen)
    summary = await (await played.again()).run()
    assert summary.verdict is RunVerdict.DONE, at
    repeated = seen[len(before) :]
    assert ("a" in done) == ({"x": "a"} not in repeated), at
    assert ("b" in done) == ("slow_once" not in repeated), at
    assert seen[-1] == {"x": "at last"}, at
    finished = {one.step_id for one in played.base.all_receipts() if one.status is StepStatus.DONE}
    assert finished == {"a", "b", "c"}, at
    _check_readable(played, at)
    held_to_schema(played)


def _check_readable(played: Play, at: str) -> None:
    base = played.base
    for path in base.receipts.glob("[!.]*.json"):
        shape = Capture if path.name.endswith("-timeout.json") else StepReceipt
        assert read(path, shape) is not None, (at, path)
    for line in read_lines(base.timeouts, TimeoutRecord):
        receipt = json.loads((played.folder / line.recovery_path).read_text())
        assert receipt["partial"] is False, at
    assert all(isinstance(line, FlowEvent) for line in read_lines(base.events, FlowEvent))
