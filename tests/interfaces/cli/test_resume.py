"""`allswell resume`: a run that was cut off goes on, and nothing of what was there is lost."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import patience
from tests.flows.run.test_files import validate
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.flow_scene import base_of, git, repository, start, until, write
from tests.interfaces.cli.shell import Shell
from tests.interfaces.cli.upkeep import at_terminal, environment, run, watch_at

CUT_OFF = """\
steps:
- {id: first, run: [sh, -c, 'echo first >> ran; echo one > first.txt'], outputs: [first.txt]}
- id: slow
  needs: first
  run: [sh, -c, 'echo slow >> ran; echo changed > kept.txt; echo new > new.txt; touch begun; test -e go || sleep 60']
- {id: last, needs: slow, run: [sh, -c, 'echo last >> ran']}
"""


CHANGED = ["begun", "kept.txt", "new.txt", "ran"]
"""What the slow step changes; `first.txt` is the first one's, and `flow.yaml` was there before."""


def _cut_off(folder: Path, number: signal.Signals = signal.SIGINT) -> str:
    """A repository in which a flow was interrupted at its slow step; its run."""
    repository(folder)
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
    assert receipt["context_for_resume"]["uncommitted_changes"] == CHANGED
    assert receipt["phase"] == "work"
    events = [json.loads(line) for line in (base_of(tmp_path) / "flow" / "events.jsonl").read_text().splitlines()]
    assert [one["data"]["phase"] for one in events if one["event"] == "step_ended"] == ["finalize", "work"]
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
    (step,) = told["steps"]
    assert (step["step_id"], step["changes"], step["shared"]) == ("slow", CHANGED, {})
    assert (tmp_path / "kept.txt").read_text() == "changed\n", "nothing was done before somebody chose"
    in_words = run("resume", name, cwd=tmp_path)
    assert (in_words.code, "2 discard_and_retry" in in_words.err) == (3, True)


DISCARDED = """\
steps:
- {id: first, run: [sh, -c, 'echo one > first.txt; echo two > aside.txt'], outputs: [first.txt]}
- id: slow
  needs: first
  run:
  - sh
  - -c
  - |
    if test -e again; then cat kept.txt notes.txt gone.txt x.sh > seen; exit; fi
    echo changed > kept.txt; echo more >> notes.txt; rm gone.txt; echo new > new.txt; chmod -x x.sh; ln -sf new.txt link
    touch begun; sleep 60
"""


def _was_there(folder: Path, *, git_too: bool) -> dict[str, str]:
    """A folder with somebody's work in it, committed and not; what is in it."""
    if git_too:
        repository(folder)
    for name in ("gone.txt", "other.txt", "x.sh"):
        (folder / name).write_text("committed\n")
    (folder / "x.sh").chmod(0o755)
    if git_too:
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "second")
    (folder / "kept.txt").write_text("edited by hand\n")
    (folder / "other.txt").write_text("edited too\n")
    (folder / "notes.txt").write_text("a note\n")
    (folder / "allswell.toml").write_text("timeout_escalation = 3\n")
    (folder / "link").symlink_to("kept.txt")
    write(folder, DISCARDED)
    return _files(folder)


def _files(folder: Path) -> dict[str, str]:
    """Everything in a folder but what the flow itself needs to be steered by."""
    return {
        path.name: str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in folder.iterdir()
        if not path.is_dir() and path.name not in ("again", "seen")
    }


@pytest.mark.row("F11")
@pytest.mark.parametrize("number, git_too", [(signal.SIGINT, True), (signal.SIGKILL, False)], ids=["git", "no git"])
def test_discarding_touches_only_what_the_step_changed(
    tmp_path: Path, number: signal.Signals, *, git_too: bool
) -> None:
    """Not what was dirty or untracked before, not what a finished step left, not what somebody did afterwards."""
    before = _was_there(tmp_path, git_too=git_too)
    flow = start("run", "flow.yaml", cwd=tmp_path)
    until(tmp_path / "begun")
    flow.send_signal(number)
    assert flow.wait(30) == (130 if number is signal.SIGINT else -number)
    name = base_of(tmp_path).name
    changed = ["begun", "gone.txt", "kept.txt", "link", "new.txt", "notes.txt", "x.sh"]
    asked = run("resume", name, "--json", cwd=tmp_path)
    assert (asked.code, json.loads(asked.out)["steps"][0]["changes"]) == (3, changed), asked.err
    (tmp_path / "again").touch()
    (tmp_path / "later.txt").write_text("written after the cut\n")
    (tmp_path / "new.txt").write_text("taken over by hand\n")
    ran = run("resume", name, "--choose", "discard_and_retry", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert (tmp_path / "seen").read_text() == "edited by hand\na note\ncommitted\ncommitted\n"
    after = {"first.txt": "one\n", "aside.txt": "two\n", "later.txt": "written after the cut\n"}
    assert _files(tmp_path) == {**before, **after, "new.txt": "taken over by hand\n"}
    assert os.access(tmp_path / "x.sh", os.X_OK)
    if git_too:
        refs = git(tmp_path, "for-each-ref", "--format=%(refname)", "refs/allswell").split()
        assert "changed\n" in [git(tmp_path, "show", f"{ref}:kept.txt") for ref in refs], "it was kept first"
        assert git(tmp_path, "status", "--short", "--", "gone.txt", "x.sh") == ""


@pytest.mark.row("F11")
def test_without_git_a_step_that_changed_nothing_is_not_asked_about(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a note\n")
    write(tmp_path, "steps: [{id: a, run: [sh, -c, 'touch ../begun; test -e ../go || sleep 60']}]")
    for name in ("begun", "go"):
        (tmp_path.parent / name).unlink(missing_ok=True)
    flow = start("run", "flow.yaml", cwd=tmp_path)
    until(tmp_path.parent / "begun")
    flow.send_signal(signal.SIGINT)
    assert flow.wait(30) == 130
    (tmp_path.parent / "go").touch()
    ran = run("resume", base_of(tmp_path).name, cwd=tmp_path)
    assert (ran.code, "flow is done (1 done)" in ran.out) == (0, True), ran.err


@pytest.mark.row("F11")
def test_what_a_function_had_changed_when_its_process_was_killed_is_offered_too(tmp_path: Path) -> None:
    folder = tmp_path / "flow"
    folder.mkdir()
    (folder / "notes.txt").write_text("a note\n")
    (folder / "work.py").write_text(
        "import pathlib, time\n"
        "def write():\n"
        "    if not pathlib.Path('../go').exists():\n"
        "        pathlib.Path('notes.txt').write_text('half')\n"
        "        pathlib.Path('begun').touch()\n"
        "        time.sleep(60)\n"
        "    return pathlib.Path('notes.txt').read_text()\n"
    )
    write(folder, "steps: [{id: a, python: 'work:write'}]")
    flow = start("run", "flow.yaml", cwd=folder)
    until(folder / "begun")
    flow.kill()
    flow.wait(30)
    name = base_of(folder).name
    asked = json.loads(run("resume", name, "--json", cwd=folder).out)
    assert {"begun", "notes.txt"} <= set(asked["steps"][0]["changes"])
    (tmp_path / "go").touch()
    ran = run("resume", name, "--choose", "discard_and_retry", cwd=folder)
    assert (ran.code, (folder / "notes.txt").read_text()) == (0, "a note\n"), ran.err


@pytest.mark.row("F11")
def test_what_was_changed_after_the_runner_had_died_is_nobodys_to_discard(tmp_path: Path) -> None:
    write(tmp_path, "steps: [{id: a, run: [sh, -c, 'test -e begun && exit; sleep 0.2; touch begun; sleep 60']}]")
    flow = start("run", "flow.yaml", cwd=tmp_path)
    until(tmp_path / "begun")
    flow.kill()
    flow.wait(30)
    (tmp_path / "mine.txt").write_text("written the next morning\n")
    os.utime(base_of(tmp_path) / "lock", (0, 0))  # as if its last sign of life lay long ago
    ran = run("resume", base_of(tmp_path).name, cwd=tmp_path)
    assert (ran.code, "flow is done (1 done)" in ran.out) == (0, True), ran.err


@pytest.mark.row("F11")
def test_of_two_steps_cut_off_together_each_is_offered_with_its_own(tmp_path: Path) -> None:
    """What only one of them was to leave is its own; what either may have made is told with both, and kept."""
    script = "test -e go || {{ echo half > {0}.txt; touch begun-{0}; sleep 60; }}; echo {0} > {0}.txt"
    steps = "".join(
        f"- {{id: {one}, run: [sh, -c, '{script.format(one)}'], outputs: [{one}.txt]}}\n" for one in ("a", "b")
    )
    write(tmp_path, f"steps:\n{steps}")
    flow = start("run", "flow.yaml", cwd=tmp_path)
    until(tmp_path / "begun-a")
    until(tmp_path / "begun-b")
    flow.send_signal(signal.SIGINT)
    assert flow.wait(30) == 130
    name = base_of(tmp_path).name
    asked = run("resume", name, "--json", "--choose", "a=discard_and_retry", cwd=tmp_path)
    told = {one["step_id"]: one for one in json.loads(asked.out)["steps"]}
    assert (asked.code, set(told)) == (3, {"a", "b"}), "b is not decided"
    for one, other in (("a", "b"), ("b", "a")):
        assert f"{one}.txt" in told[one]["changes"]
        assert f"{other}.txt" not in told[one]["changes"]
        assert f"{one}.txt" not in told[one]["shared"]
        assert all(also == [other] for also in told[one]["shared"].values())
    wrong = run("resume", name, "--choose", "c=retry_step", cwd=tmp_path)
    assert (wrong.code, "'c' was not cut off with changes" in wrong.err) == (2, True)
    (tmp_path / "go").touch()
    each = ("--choose", "a=discard_and_retry", "--choose", "b=retry_step")
    ran = run("resume", name, *each, cwd=tmp_path)
    assert (ran.code, (tmp_path / "a.txt").read_text()) == (0, "a\n"), ran.err
    assert {path.name for path in tmp_path.glob("begun-*")} >= set(told["a"]["shared"]), "they may be b's"


@pytest.mark.realtime
@pytest.mark.row("F11")
@pytest.mark.parametrize("how", ["ended", "changed"])
def test_a_question_that_ends_with_its_run_gives_way_to_the_offer(tmp_path: Path, how: str) -> None:
    """The run is over, or goes on by another file: the step would be run again, so what it left is asked about."""
    (tmp_path / "allswell.toml").write_text("timeout_escalation = 1\n")
    text = "timeouts: {step: 1s}\nsteps: [{id: a, run: [sh, -c, 'echo x >> tries; test -e go || sleep 60']}]\n"
    write(tmp_path, text)
    assert run("run", "flow.yaml", "--json", cwd=tmp_path).code == 3
    name = base_of(tmp_path).name
    again = json.loads(run("resume", name, "--json", cwd=tmp_path).out)
    assert again["verdict"] == "needs_human", "as long as the run can go on, the question stands"
    if how == "ended":
        asyncio.run(_end_run(tmp_path, name))
    else:
        write(tmp_path, text.replace("1s", "2s"))
    offered = run("resume", name, "--json", cwd=tmp_path)
    assert (offered.code, json.loads(offered.out)["steps"][0]["changes"]) == (3, ["tries"]), offered.out
    assert (tmp_path / "tries").read_text() == "x\n", "nothing was run before somebody chose"


async def _end_run(folder: Path, run_id: str) -> None:
    async with watch_at(folder) as watch:
        await watch.end_run(run_id)


@pytest.mark.row("F11")
def test_escalating_asks_a_human_and_the_answer_goes_on(tmp_path: Path) -> None:
    name = _cut_off(tmp_path)
    ran = run("resume", name, "--choose", "escalate", "--json", cwd=tmp_path)
    (question,) = json.loads(ran.out)["question_ids"]
    assert ran.code == 3
    assert run("answer", question, "retry", cwd=tmp_path).code == 0
    went_on = run("resume", name, "--choose", "retry_step", cwd=tmp_path)
    assert went_on.code == 0, went_on.out + went_on.err
    assert (tmp_path / "ran").read_text().split() == ["first", "slow", "slow", "last"]


@pytest.mark.row("F11")
def test_without_changes_it_simply_goes_on_after_the_last_good_step(tmp_path: Path) -> None:
    name = _cut_off(tmp_path)
    git(tmp_path, "add", *CHANGED)
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
def test_a_run_that_failed_and_was_cut_off_as_it_went_on_goes_on_again(tmp_path: Path) -> None:
    """Twice: the second time what is carried along comes from a run that carried something along itself."""
    script = "echo try >> tries; test -e ok || exit 1; touch begun; test -e go || sleep 60"
    write(tmp_path, f"steps:\n- {{id: ship, run: [sh, -c, '{script}']}}\n- {{id: last, needs: ship, run: 'true'}}\n")
    assert run("run", "flow.yaml", cwd=tmp_path).code == 1
    name = base_of(tmp_path).name
    (tmp_path / "ok").touch()
    for number in (signal.SIGINT, signal.SIGKILL):
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


# --- what a human said ------------------------------------------------------------------------------------------------

TELLS = """\
#!/bin/sh
[ -n "$ALLSWELL_HANDOVER" ] || exit 0
echo "$2" > words.$1
echo "$3" > place.$1
echo "$ALLSWELL_HANDOVER" > variable.$1
cat "$ALLSWELL_HANDOVER_FILE" > file.$1
cat > input.$1
allswell checkin --json > checkin.$1
"""


@pytest.mark.row("O9")
def test_a_humans_words_reach_the_next_attempt_at_every_kind_of_step(shell: Shell) -> None:
    folder = shell.folder
    (folder / "tells").write_text(TELLS)
    (folder / "tells").chmod(0o755)
    (folder / "painting.py").write_text(
        "import allswell, pathlib\n"
        "def paint(told):\n"
        "    if told:\n"
        "        pathlib.Path('words.py').write_text(told)\n"
        "        pathlib.Path('variable.py').write_text(allswell.handover())\n"
    )
    (folder / "allswell.toml").write_text(
        'verify_attempts = 1\n[agents.ada]\ncommand = ["./tells", "ada", "{prompt}", "{handover}"]\n'
    )
    write(
        folder,
        "steps:\n"
        "- {id: cmd, run: [./tells, cmd, '{handover}'], verify: test -e good}\n"
        "- {id: ada, agent: ada, prompt: Paint the wall., verify: test -e good}\n"
        "- {id: py, python: 'painting:paint', inputs: {told: '{handover}'}, verify: test -e good}\n",
    )
    shell("run", "flow.yaml", code=3)
    for step in ("cmd", "ada", "py"):
        shell("answer", step, "clarify", f"{step} shall be red")
    (folder / "good").touch()
    shell("resume", base_of(folder).name)
    told = {path.name: path.read_text() for path in folder.glob("[a-z]*.*")}
    for step in ("cmd", "ada"):
        for place in ("words", "variable", "file", "checkin"):
            assert f"{step} shall be red" in told[f"{place}.{step}"], (place, step)
    assert "cmd shall be red" in told["input.cmd"]
    assert told["words.ada"].startswith("Paint the wall.")
    assert "ada shall be red" in told["place.ada"]
    assert "py shall be red" in told["words.py"]
    assert told["variable.py"] == told["words.py"]


@pytest.mark.row("O9")
def test_steps_after_one_that_a_human_skipped_are_told_why_and_counted_when_the_run_goes_on(cli: Console) -> None:
    (cli.folder / "login.py").write_text("def refused():\n    raise PermissionError('no key')\n")
    write(
        cli.folder,
        "steps:\n- {id: a, python: 'login:refused'}\n"
        "- {id: b, needs: a, run: 'true'}\n- {id: c, needs: b, run: 'true'}\n",
    )
    assert run("run", "flow.yaml", cwd=cli.folder).code == 3
    cli.ok("answer", "a", "skip", "the server is gone", "--yes")
    ran = run("resume", base_of(cli.folder).name, cwd=cli.folder)
    assert ran.code == 0, ran
    assert "flow is done (3 skipped)" in ran.out
    for step in ("b", "c"):
        assert cli.ok("show", step, "--json").json["task"]["reason"].endswith("was skipped: the server is gone")


@pytest.mark.row("O9")
def test_a_humans_words_outlive_the_task_of_a_command_that_is_run_again(shell: Shell) -> None:
    folder = shell.folder
    (folder / "asks").write_text(
        "#!/bin/sh\n"
        "n=$(($(cat tries 2>/dev/null || echo 0) + 1)); echo $n > tries\n"
        'echo "$ALLSWELL_HANDOVER" > told.$n\n'
        "[ $n -gt 1 ] || exec allswell ask 'Which colour?' --option red=Red --option blue=Blue\n"
        "[ $n -gt 2 ]\n"
    )
    (folder / "asks").chmod(0o755)
    shell("run", "--name", "wall", "--", "./asks", code=3)
    shell("answer", "wall", "blue", "as the sea")
    task = shell.json("show", "wall")["task"]["task_id"]
    shell("run", "--resume", task, code=1)
    assert "A human has chosen this option, which it had offered:\n> blue" in (folder / "told.2").read_text()
    assert "as the sea" in (folder / "told.2").read_text()
    assert shell.json("show", task)["task"]["state"] == "failed"
    shell("run", "--resume", task)
    assert "as the sea" in (folder / "told.3").read_text()


@pytest.mark.row("O9", "F11")
def test_a_step_that_a_human_split_stays_split_in_another_run_and_nothing_is_asked_about_its_changes(
    cli: Console,
) -> None:
    repository(cli.folder)
    (cli.folder / "allswell.toml").write_text("timeout_escalation = 1\n")
    slow = "{id: slow, timeout_override: 1s, run: [sh, -c, 'echo slow >> ran; sleep 60']}"
    write(cli.folder, f"steps:\n- {slow}\n- {{id: last, needs: slow, run: [sh, -c, 'echo last >> ran']}}\n")
    assert run("run", "flow.yaml", cwd=cli.folder).code == 3
    (question,) = cli.ok("questions", "--json").json["questions"]
    (cli.folder / "parts.json").write_text('[{"name": "small", "payload": "dig"}, {"name": "smaller"}]')
    cli.ok("answer", question["question_id"], "split", "--subtasks", "parts.json")
    with (cli.folder / "flow.yaml").open("a") as file:
        file.write("# it has changed\n")
    runs = start("resume", base_of(cli.folder).name, cwd=cli.folder)
    end = time.monotonic() + patience.SECONDS
    while [row["state"] for row in cli.ok("tasks", "--all", "--json").json["tasks"]].count("cancelled") < 3:
        assert time.monotonic() < end, "the run did not go on in another one"
        time.sleep(0.05)
    names = []
    for _ in range(2):
        names.append(cli.claim("ada", "--wait", "60s")["task"]["name"])
        cli.ok("done")
        for name in ("TASK", "TOKEN", "AGENT"):
            cli.patch.delenv(f"ALLSWELL_{name}")
    assert runs.wait(patience.SECONDS) == 0
    assert sorted(names) == ["small", "smaller"]
    assert (cli.folder / "ran").read_text().split() == ["slow", "last"]
