"""Very many tasks as JSON lines: looked at first, never held at once."""

from typing import Any

import msgspec
import pytest

from allswell.engine import submission
from allswell.engine.submission import TaskMaker
from tests.interfaces.cli.console import Console


def lines(*tasks: Any) -> str:  # noqa: ANN401
    return "".join(msgspec.json.encode(task).decode() + "\n" for task in tasks)


def test_very_many_lines_are_looked_at_first_and_never_held_at_once(
    cli: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "FEW", 40)
    monkeypatch.setattr(submission, "PARCEL", 25)
    held: list[int] = []
    new_tasks = TaskMaker.new_tasks

    def counted(self: TaskMaker, tasks: Any) -> Any:  # noqa: ANN401
        held.append(len(tasks))
        return new_tasks(self, tasks)

    monkeypatch.setattr(TaskMaker, "new_tasks", counted)
    old = cli.submit("an older one")
    tasks = [{"name": f"n{number}", "needs": [f"n{number - 1}"] if number % 30 == 26 else []} for number in range(130)]
    tasks[99]["needs"] = ["an older one", "n0"]
    ids = cli.ok("submit", "-", stdin=lines(*tasks)).out.split()
    assert (len(ids), len(set(ids)), max(held)) == (130, 130, 25)
    assert cli.ok("show", ids[26], "--json").json["task"]["needs"] == [ids[25]]  # of the parcel before
    assert cli.ok("show", ids[56], "--json").json["task"]["needs"] == [ids[55]]  # of the same
    assert cli.ok("show", ids[99], "--json").json["task"]["needs"] == [old, ids[0]]
    # A mistake far down leaves nothing behind, and says where it is.
    before = len(cli.ok("tasks", "--limit", "1000", "--json").json["tasks"])
    for wrong in (
        '{"name": 7}',
        '{"name": "x", "needs": ["nobody"]}',
        '{"name": "x", "key": "k"}\n{"name": "y", "key": "k"}',
        '{"name": "x", "needs": ["x"]}',
        "nonsense",
    ):
        said = cli("submit", "-", stdin=lines(*tasks) + "\n" + wrong)
        assert (said.code, said.out) == (2, ""), wrong
        assert "line 13" in said.err or "cycle" in said.err, said.err
    assert len(cli.ok("tasks", "--limit", "1000", "--json").json["tasks"]) == before
    # Where a line needs one below, the order is found among all of them.
    again = cli.ok(
        "submit",
        "-",
        "--json",
        stdin=lines(*({"name": f"m{n}", "needs": [f"m{n + 1}"]} for n in range(50)), {"name": "m50"}),
    ).json
    assert again["submitted"] == len(again["task_ids"]) == 51
    streamed = cli.ok("submit", "-", "--json", stdin=lines(*({"name": f"o{n}"} for n in range(60)))).json
    assert streamed["submitted"] == len(streamed["task_ids"]) == 60
