"""`allswell resume`: a run that was cut off goes on, and nothing of what was there is lost."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.doors.cli.console import Console
from tests.doors.cli.flow_scene import base_of, git, repository, start, until, write
from tests.doors.cli.upkeep import at_terminal, environment, run
from tests.flows.run.test_files import validate

CUT_OFF = """\
steps:
- {id: first, run: [sh, -c, 'echo first >> ran; echo one > first.txt'], outputs: [first.txt]}
- id: slow
  needs: first
  run: [sh, -c, 'echo slow >> ran; echo changed > kept.txt; echo new > new.txt; touch begun; test -e go || sleep 60']
- {id: last, needs: slow, run: [sh, -c, 'echo last >> ran']}
"""


def _cut_off(folder: Path, number: signal.Signals = signal.SIGINT) -> str:
    """A repository in which a flow was interrupted at its slow step; its run."""
    repository(folder)
    (folder / ".gitignore").write_text("ran\nbegun\ngo\nfirst.txt\nflow.yaml\n.gitignore\n")
    write(folder, CUT_OFF)
    flow = start("run", "flow.yaml", cwd=folder)
    until(folder / "begun")
    flow.send_signal(number)
    assert flow.wait(30) == 130
    (folder / "go").touch()
    return base_of(folder).name


@pytest.mark.row("F13")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_receipt_and_a_run_that_resumes(tmp_path: Path, number: signal.Signals) -> None:
    name = _cut_off(tmp_path, number)
    receipt = json.loads((base_of(tmp_path) / "flow" / "receipts" / "slow-run-1.json").read_text())
    validate("receipt", receipt)
    assert (receipt["status"], receipt["error"]) == ("interrupted", number.name)
    assert receipt["context_for_resume"]["uncommitted_changes"] == ["kept.txt", "new.txt"]
    overview = run(cwd=tmp_path)
    assert (overview.code, f"allswell resume {name}" in overview.out) == (3, True), overview.out
    assert f"allswell resume {name}" in run("why", "slow", cwd=tmp_path).out
    ran = run("resume", name, "--choose", "retry_step", cwd=tmp_path)
    assert (ran.code, "flow is done (3 done)" in ran.out) == (0, True), ran.err
    assert (tmp_path / "ran").read_text().split() == ["first", "slow", "slow", "last"]


@pytest.mark.realtime
@pytest.mark.row("F13")
def test_a_second_signal_is_immediate_and_still_leaves_a_receipt(tmp_path: Path) -> None:
    write(tmp_path, "steps: [{id: a, run: [sh, -c, 'trap \"\" TERM; touch begun; sleep 60 & wait; sleep 60']}]")
    command = [sys.executable, "-m", "allswell", "run", "flow.yaml"]
    flow = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    until(tmp_path / "begun")
    began = time.monotonic()
    flow.send_signal(signal.SIGINT)
    assert flow.stderr is not None
    assert "again to stop at once" in flow.stderr.readline()
    flow.send_signal(signal.SIGINT)
    assert flow.wait(30) == 130
    flow.stderr.close()
    assert time.monotonic() - began < 9, "the grace is ten seconds"
    receipt = json.loads((base_of(tmp_path) / "flow" / "receipts" / "a-run-1.json").read_text())
    assert receipt["status"] == "interrupted"


@pytest.mark.row("F11")
def test_uncommitted_changes_are_offered_in_the_seeds_words(tmp_path: Path) -> None:
    name = _cut_off(tmp_path)
    asked = run("resume", name, "--json", cwd=tmp_path)
    told = json.loads(asked.out)
    assert asked.code == 3
    assert {key: told[key] for key in ("options", "recommendation", "reason")} == {
        "options": ["retry_step", "discard_and_retry", "escalate"],
        "recommendation": "retry_step",
        "reason": "Partial work exists that may be salvageable",
    }
    assert (told["step"], told["changes"]) == ("slow", ["kept.txt", "new.txt"])
    assert (tmp_path / "kept.txt").read_text() == "changed\n", "nothing was done before somebody chose"
    in_words = run("resume", name, cwd=tmp_path)
    assert (in_words.code, "2 discard_and_retry" in in_words.err) == (3, True)


@pytest.mark.row("F11")
def test_discarding_puts_the_files_back_and_keeps_them_on_a_recovery_ref_first(tmp_path: Path) -> None:
    name = _cut_off(tmp_path)
    (tmp_path / "go").unlink()
    write(tmp_path, CUT_OFF.replace("test -e go || sleep 60", "cat before.txt").replace("touch begun", "true"))
    write(
        tmp_path, (tmp_path / "flow.yaml").read_text().replace("echo changed", "cp kept.txt before.txt; echo changed")
    )
    ran = run("resume", name, "--choose", "discard_and_retry", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert (tmp_path / "before.txt").read_text() == "as committed\n", "the step began on what is committed"
    assert "+" in ran.err, "the changed file is shown as a diff"
    kept = [line.split()[1] for line in git(tmp_path, "for-each-ref", "--format=x %(refname)").splitlines()]
    (ref,) = [one for one in kept if one.startswith("refs/allswell/")]
    assert git(tmp_path, "show", f"{ref}:kept.txt") == "changed\n"
    assert git(tmp_path, "show", f"{ref}:new.txt") == "new\n"
    assert (tmp_path / "ran").read_text().split() == ["first", "slow", "slow", "last"]


@pytest.mark.row("F11")
def test_escalating_asks_a_human_and_the_answer_goes_on(tmp_path: Path) -> None:
    name = _cut_off(tmp_path)
    ran = run("resume", name, "--choose", "escalate", "--json", cwd=tmp_path)
    (question,) = json.loads(ran.out)["questions"]
    assert ran.code == 3
    assert run("answer", question, "retry", cwd=tmp_path).code == 0
    went_on = run("resume", name, "--choose", "retry_step", cwd=tmp_path)
    assert went_on.code == 0, went_on.out + went_on.err
    assert (tmp_path / "ran").read_text().split() == ["first", "slow", "slow", "last"]


@pytest.mark.row("F11")
def test_without_changes_it_simply_goes_on_after_the_last_good_step(tmp_path: Path) -> None:
    name = _cut_off(tmp_path)
    git(tmp_path, "add", "kept.txt", "new.txt")
    git(tmp_path, "commit", "-qm", "kept by hand")
    ran = run("resume", name, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert (tmp_path / "ran").read_text().split() == ["first", "slow", "slow", "last"]


def test_what_an_earlier_attempt_left_is_not_written_over_when_the_run_goes_on(tmp_path: Path) -> None:
    write(tmp_path, "steps:\n- {id: ship, run: [sh, -c, 'echo try; test -e key']}\n")
    assert run("run", "flow.yaml", cwd=tmp_path).code == 1
    assert run("resume", base_of(tmp_path).name, cwd=tmp_path).code == 1
    overview = json.loads(run("--json", cwd=tmp_path).out)
    assert [one["kind"] for one in overview["needs"]] == ["failed"], "the last failure is news, the one before is not"
    (tmp_path / "key").touch()
    assert run("resume", base_of(tmp_path).name, cwd=tmp_path).code == 0
    folder = base_of(tmp_path) / "flow"
    _all_is_well(tmp_path, base_of(tmp_path).name)
    receipts = {path.name: json.loads(path.read_text())["status"] for path in (folder / "receipts").iterdir()}
    assert receipts == {"ship-run-1.json": "failed", "ship-run-2.json": "failed", "ship-run-3.json": "done"}
    assert sorted(path.name for path in (folder / "llm").glob("*.stdout")) == [f"ship-{n}.stdout" for n in (1, 2, 3)]


@pytest.mark.row("F11", "F13")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_failed_and_was_cut_off_as_it_went_on_goes_on_again(tmp_path: Path, number: signal.Signals) -> None:
    """Twice: the second time what is carried along comes from a run that carried something along itself."""
    script = "echo try >> tries; test -e ok || exit 1; touch begun; test -e go || sleep 60"
    write(tmp_path, f"steps:\n- {{id: ship, run: [sh, -c, '{script}']}}\n- {{id: last, needs: ship, run: 'true'}}\n")
    assert run("run", "flow.yaml", cwd=tmp_path).code == 1
    name = base_of(tmp_path).name
    (tmp_path / "ok").touch()
    for _ in range(2):
        resumed = start("resume", name, "--choose", "retry_step", cwd=tmp_path)
        until(tmp_path / "begun")
        resumed.send_signal(number)
        assert resumed.wait(30) == (130 if number is signal.SIGINT else -number)
        (tmp_path / "begun").unlink()
    (tmp_path / "go").touch()
    (tmp_path / "allswell.toml").write_text('agent_timeout = "20m"\n')  # a setting that steps are made with
    ran = run("resume", name, "--choose", "retry_step", "--json", cwd=tmp_path)
    assert (ran.code, json.loads(ran.out)["verdict"]) == (0, "done"), ran.err
    assert (tmp_path / "tries").read_text().split() == ["try"] * 4
    receipts = {path.name for path in (base_of(tmp_path) / "flow" / "receipts").glob("ship-*.json")}
    assert receipts == {f"ship-run-{attempt}.json" for attempt in (1, 2, 3, 4)}


def _all_is_well(folder: Path, name: str) -> None:
    """A run that failed and went on to a good end is done, whoever is asked about it."""
    overview = run(cwd=folder)
    assert (overview.code, "All's well" in overview.out) == (0, True), overview.out
    assert "All's well." in run("doctor", cwd=folder).out
    shown = json.loads(run("show", name, "--json", cwd=folder).out)
    assert (shown["run"]["reason"], shown["tasks"]) == ("done", {"done": 1})
    assert "failed" not in run("show", name, cwd=folder).out
    why = run("why", name, cwd=folder).out
    assert "failed, and went on in r_" in why
    assert "was ended" in why.rpartition("went on in")[2], "how the last one ended is told after it"
    assert "failed" not in why.rpartition("went on in")[2]


def test_a_run_that_is_done_has_nothing_left_to_do(cli: Console) -> None:
    cli.ok("run", write(cli.folder, "steps: [{id: a, python: 'os:getcwd'}]"))
    name = base_of(cli.folder).name
    said = cli("resume", name)
    assert (said.code, "flow is done (1 done)" in said.out) == (0, True)
    assert len(cli.ok("runs", "--json").json["runs"]) == 1


def test_a_file_that_is_not_what_a_finished_step_left_is_refused(tmp_path: Path) -> None:
    name = _cut_off(tmp_path)
    (tmp_path / "first.txt").write_text("two\n")
    said = run("resume", name, "--choose", "retry_step", cwd=tmp_path)
    assert (said.code, "step first: first.txt is not what it was" in said.err) == (2, True)
    (tmp_path / "first.txt").unlink()
    assert "first.txt is gone" in run("resume", name, "--choose", "retry_step", cwd=tmp_path).err
    (tmp_path / "first.txt").write_text("one\n")
    assert run("resume", name, "--choose", "retry_step", cwd=tmp_path).code == 0


def test_a_file_that_a_later_step_went_over_is_compared_with_what_that_one_left(tmp_path: Path) -> None:
    write(
        tmp_path,
        "steps:\n"
        "- {id: make, run: [sh, -c, 'echo one > x.txt'], outputs: [x.txt]}\n"
        "- {id: mend, needs: make, run: [sh, -c, 'echo two >> x.txt'], outputs: [x.txt]}\n"
        "- {id: last, needs: mend, run: test -e go}\n",
    )
    assert run("run", "flow.yaml", cwd=tmp_path).code == 1
    (tmp_path / "go").touch()
    ran = run("resume", base_of(tmp_path).name, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert (tmp_path / "x.txt").read_text() == "one\ntwo\n"


def test_somebody_at_a_terminal_is_asked(tmp_path: Path) -> None:
    name = _cut_off(tmp_path)
    ran = at_terminal("resume", name, cwd=tmp_path, columns=80, typed="discard\n")
    assert "(recommended: Partial work exists that may be salvageable)" in ran.out
    assert "are kept in refs/allswell/" in ran.out.replace("\n  ", " ")
    assert ran.code == 0, ran.out
