"""`allswell run FLOW.yaml`: what is shown, what it exits with, what is refused, and who takes part."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allswell.domain.values import QUOTED_IS_DATA
from tests import patience
from tests.flows.run.test_files import validate
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.flow_scene import base_of, git, repository, start, until, write
from tests.interfaces.cli.shell import ALLSWELL, Shell
from tests.interfaces.cli.upkeep import at_terminal, run
from tests.interfaces.views.outside import check

# --- how it ends ------------------------------------------------------------------------------------------------------


def test_a_flow_that_is_done_says_so_and_leaves_receipts(tmp_path: Path) -> None:
    repository(tmp_path)
    write(
        tmp_path,
        "inputs: {who: world}\nsteps:\n"
        "- {id: greet, run: 'echo hello {{ inputs.who }}'}\n"
        "- {id: keep, needs: greet, run: [sh, -c, 'echo \"$1\" > out.txt', sh, '{{ steps.greet.stdout }}'],"
        " outputs: {text: out.txt}}\n",
    )
    ran = run("run", "flow.yaml", "-i", "who=you; rm -rf /", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "All's well: flow is done (2 done)." in ran.out
    assert (tmp_path / "out.txt").read_text() == "hello you; rm -rf /\n"
    receipt = json.loads((base_of(tmp_path) / "flow" / "receipts" / "keep-run-1.json").read_text())
    validate("receipt", receipt)
    assert (receipt["status"], receipt["exit_code"], receipt["artifacts"][0]["path"]) == ("done", 0, "out.txt")
    assert receipt["git"] == {"sha": git(tmp_path, "rev-parse", "HEAD").strip(), "branch": _branch(tmp_path)}
    assert (base_of(tmp_path) / "flow" / "llm" / "greet-1.stdout").read_text() == "hello you; rm -rf /\n"
    assert git(tmp_path, "status", "--short").split() == ["??", "flow.yaml", "??", "out.txt"]
    shown = run("show", base_of(tmp_path).name, "--json", cwd=tmp_path)
    assert [one["step_id"] for one in json.loads(shown.out)["flow"]["receipts"]] == ["greet", "keep"]


def _branch(folder: Path) -> str:
    return git(folder, "rev-parse", "--abbrev-ref", "HEAD").strip()


def test_the_exit_code_says_how_it_ended(tmp_path: Path) -> None:
    cases = {
        "steps: [{id: a, run: 'true'}]": (0, "done"),
        "steps: [{id: a, run: 'false'}, {id: b, run: 'true', needs: a}]": (1, "failed"),
        "steps: [{id: a, run: 'true', audit: 'false'}]": (3, "needs_human"),
        "timeouts: {flow: 1s, step: 900ms}\nsteps: [{id: a, run: sleep 60, timeout_override: 20s}]": (124, "timed_out"),
    }
    for number, (text, (code, verdict)) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        ran = run("run", write(folder, text), "--json", cwd=folder)
        assert (ran.code, json.loads(ran.out)["verdict"], json.loads(ran.out)["exit"]) == (code, verdict, code), ran.err


def test_work_that_fails_its_audit_goes_back_three_times_and_then_to_a_human(tmp_path: Path) -> None:
    write(
        tmp_path,
        "steps:\n"
        "- id: a\n"
        "  run: [sh, -c, 'echo x >> tries; echo \"$ALLSWELL_AUDIT\" >> said']\n"
        "  audit: [sh, -c, 'echo only $(wc -l < tries) lines; test $(wc -l < tries) -ge $NEED']\n"
        "  env: {NEED: '{{ inputs.need }}'}\n"
        "inputs: {need: 3}\n",
    )
    ran = run("run", "flow.yaml", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.out
    assert (tmp_path / "said").read_text().splitlines() == ["", "only 1 lines", "only 2 lines"]
    receipt = json.loads(next((tmp_path / ".allswell" / "runs").glob("*/flow/receipts/a-run-1.json")).read_text())
    assert [one["passed"] for one in receipt["audits"]] == [False, False, True]
    (tmp_path / "tries").unlink()
    asked = run("run", "flow.yaml", "-i", "need=9", cwd=tmp_path)
    assert asked.code == 3
    assert len((tmp_path / "tries").read_text().splitlines()) == 3
    questions = json.loads(run("questions", "--json", cwd=tmp_path).out)["questions"]
    assert "its audit failed 3 times; the last said: only 3 lines" in questions[0]["text"]


def test_failed_audits_count_over_the_attempts_at_a_step(tmp_path: Path) -> None:
    write(
        tmp_path,
        "steps:\n"
        "- id: a\n"
        "  run: [sh, -c, 'echo x >> tries; test $(wc -l < tries) -ne 2']\n"
        "  audit: 'false'\n"
        "  retry: {retries: 2, backoff: 10ms}\n",
    )
    assert run("run", "flow.yaml", cwd=tmp_path).code == 3
    tries = (tmp_path / "tries").read_text()
    assert tries.count("x") == 4, "one that failed its audit, one that failed, two more that failed their audit"
    questions = json.loads(run("questions", "--json", cwd=tmp_path).out)["questions"]
    assert "its audit failed 3 times" in questions[0]["text"]


AGENTS = """\
[agents.ada]
command = ["sh", "agent.sh", "{prompt}", "{attempt}"]
env = { WHO = "{name}" }
[agents.eve]
command = ["sh", "judge.sh", "{prompt_file}"]
"""


def test_agents_of_the_settings_do_steps_and_judge_them(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text(AGENTS)
    (tmp_path / "agent.sh").write_text('echo "$WHO: $1" >> work.txt; echo said\n')
    (tmp_path / "judge.sh").write_text(
        'grep -q "says PASS" "$1" || exit 9\n'
        'test $(grep -c plan: work.txt) -ge 2 && echo "Well done. PASS" || echo "I looked. FAIL: once is not enough"\n'
    )
    write(
        tmp_path,
        "inputs: {what: it}\nsteps:\n"
        "- {id: plan, agent: ada, prompt: 'Plan {{ inputs.what }}.', audit: {agent: eve, prompt: 'Is it planned?'}}\n"
        "- {id: tell, needs: plan, agent: ada, prompt: 'Tell: {{ steps.plan.stdout }}'}\n",
    )
    ran = run("run", "flow.yaml", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.out + ran.err
    work = (tmp_path / "work.txt").read_text()
    again = f"plan: Plan it.\n\nFix what the audit of your last try found:\n> once is not enough\n\n{QUOTED_IS_DATA}\n"
    assert work.startswith(f"plan: Plan it.\n{again}")
    assert work.endswith("tell: Tell: said\n")
    receipt = json.loads((base_of(tmp_path) / "flow" / "receipts" / "plan-ada-1.json").read_text())
    validate("receipt", receipt)
    assert (receipt["agent"], receipt["provider"]) == ("ada", "ada")
    assert [(one["passed"], one["by"]) for one in receipt["audits"]] == [(False, "eve"), (True, "eve")]


def test_what_a_step_before_has_printed_is_no_option_of_an_agents_command(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text(
        '[agents.ada]\ncommand = ["sh", "agent.sh", "{prompt}"]\n'
        '[agents.eve]\ncommand = ["sh", "judge.sh", "{prompt}"]\npass_env = ["*"]\n'
    )
    (tmp_path / "agent.sh").write_text('printf "%s" "$1" > asked.txt\n')
    (tmp_path / "judge.sh").write_text('printf "%s" "$1" > judged.txt; env > seen.txt; echo PASS\n')
    said = "'{{ steps.talk.stdout }}'"
    write(
        tmp_path,
        "steps:\n- {id: talk, run: [echo, --all-permissions]}\n"
        f"- {{id: plan, needs: talk, agent: ada, prompt: {said}, audit: {{agent: eve, prompt: {said}}}}}\n",
    )
    ran = run("run", "flow.yaml", cwd=tmp_path, ALLSWELL_OURS="secret", THEIRS="shown")
    assert ran.code == 0, ran.out + ran.err
    asked, judged = (Path(tmp_path, name).read_text() for name in ("asked.txt", "judged.txt"))
    assert asked == "\n--all-permissions", "begun with a line's end, as every prompt that begins with a dash"
    assert judged.startswith("\n--all-permissions\n")
    seen = (tmp_path / "seen.txt").read_text()
    assert "THEIRS=shown" in seen
    assert "ALLSWELL_OURS" not in seen, "what is ours is handed on by name alone, and by no pattern"


@pytest.mark.row("F12")
def test_an_override_is_announced_when_the_flow_is_loaded_and_in_its_log(tmp_path: Path) -> None:
    write(tmp_path, "steps: [{id: heavy-analysis, run: 'true', timeout_override: 1200000}]")
    ran = run("run", "flow.yaml", cwd=tmp_path)
    said = "flow.yaml:1:43: steps.heavy-analysis.timeout_override replaces hard_limits.step for this one step"
    assert said in ran.err
    first = json.loads((base_of(tmp_path) / "flow" / "events.jsonl").read_text().splitlines()[0])
    assert first["event"] == "flow_started"
    assert said in first["data"]["announced"][0]


@pytest.mark.realtime
@pytest.mark.row("F9", "F10", "F2")
def test_a_commands_timeout_ends_its_tree_and_keeps_its_work_its_words_and_the_way_on(tmp_path: Path) -> None:
    repository(tmp_path)
    (tmp_path / "allswell.toml").write_text("timeout_escalation = 1\n")
    (tmp_path / "log.txt").write_text("before\n")
    script = "echo begun; echo changed > kept.txt; printf half > out.txt; echo more >> log.txt; sleep 61 & "
    script += "echo $! > child; wait"
    write(
        tmp_path,
        "timeouts: {step: 2s}\nsteps:\n- {id: plan, run: 'true'}\n"
        f"- {{id: build, needs: plan, run: [sh, -c, '{script}'], outputs: [out.txt]}}\n",
    )
    ran = run("run", "flow.yaml", "--json", cwd=tmp_path)
    assert (ran.code, json.loads(ran.out)["steps"]) == (3, {"plan": "done", "build": "asked"}), ran.err
    base = base_of(tmp_path) / "flow"
    capture = json.loads((base / "receipts" / "build-timeout.json").read_text())
    validate("timeout", capture)
    assert (capture["partial"], capture["timeout_event"]["scope"]) == (False, "step")
    assert 2_000 <= capture["timeout_event"]["elapsed_ms"] < 20_000
    assert capture["last_known_state"]["phase"] == "work"
    sizes = {one["path"]: one["bytes_written"] for one in capture["partial_artifacts"]}
    child = len((tmp_path / "child").read_text())
    assert sizes == {"out.txt": 4, "child": child, "log.txt": 12}, "declared, new and grown; kept.txt has shrunk"
    assert [one["complete"] for one in capture["partial_artifacts"]] == [False] * 3
    context = capture["context_for_resume"]
    assert context["last_successful_checkpoint"] == "plan"
    assert context["uncommitted_changes"] == ["child", "kept.txt", "log.txt", "out.txt"], "its own, and nothing else"
    assert json.loads((tmp_path / context["transcript_path"]).read_text()) == {"stream": "stdout", "line": "begun"}
    line = json.loads((base / "timeouts.jsonl").read_text())
    validate("timeouts_line", line)
    assert (line["final_action"], line["retry_count"]) == ("escalate", 0)
    assert line["recovery_path"].endswith("/build.1-timeout.json"), "the attempt's own; the other one is the latest"
    assert (tmp_path / line["recovery_path"]).read_text() == (base / "receipts" / "build-timeout.json").read_text()
    receipt = json.loads((base / "receipts" / "build-run-1.json").read_text())
    assert (receipt["status"], receipt["phase"]) == ("timeout", "work")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "child").read_text()), 0)
    (ref,) = git(tmp_path, "for-each-ref", "--format=%(refname)", "refs/allswell").split()
    assert git(tmp_path, "show", f"{ref}:out.txt") == "half"
    again = run("resume", base_of(tmp_path).name, "--json", cwd=tmp_path)
    told = json.loads(again.out)
    assert (again.code, told["verdict"]) == (3, "needs_human"), "a human was asked already, and is not asked twice"
    assert len(told["question_ids"]) == 1


@pytest.mark.realtime
@pytest.mark.row("F13", "F9")
def test_time_that_runs_out_in_the_audit_is_told_with_its_phase(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text("timeout_escalation = 1\n")
    write(tmp_path, "timeouts: {step: 2s}\nsteps: [{id: a, run: 'true', audit: sleep 61}]")
    assert run("run", "flow.yaml", "--json", cwd=tmp_path).code == 3
    receipts = base_of(tmp_path) / "flow" / "receipts"
    capture = json.loads((receipts / "a-timeout.json").read_text())
    validate("timeout", capture)
    assert capture["last_known_state"]["phase"] == "finalize"
    assert json.loads((receipts / "a-run-1.json").read_text())["phase"] == "finalize"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, args, words",
    [
        ("steps: [{id: a, rnu: x}]", [], "'rnu' is nothing that a step has. Did you mean 'run'?"),
        ("steps: [{id: a, run: x, needs: b}]", [], "Step 'a' needs 'b', and there is no such step."),
        ("steps: [{id: a, run: x, needs: a}]", [], "dependency cycle detected: a -> a"),
        ("a: &a [b]\nsteps: [*a]", [], "An anchor (&a) is not taken"),
        ("steps:\n\t- id: a", [], "A tab indents this line"),
        ("timeouts: {step: 16m}\nsteps: [{id: a, run: x}]", [], "timeouts.step is above its hard limit"),
        ("steps: [{id: a, run: x, outputs: [../x]}]", [], "lies outside the run"),
        ("inputs: {who: }\nsteps: [{id: a, run: x}]", [], "the flow flow needs who; give -i who=…"),
        ("inputs: {who: x}\nsteps: [{id: a, run: x}]", ["-i", "wo=1"], "has no input 'wo'; did you mean 'who'?"),
        ("inputs: {n: 1}\nsteps: [{id: a, run: x}]", ["-i", "n=many"], "the input n must be a whole number"),
        ("steps: [{id: a, agent: nobody, prompt: x}]", [], "needs the agent 'nobody', which is not set up"),
        ("steps: [{id: a, run: x}]", ["-i", "n"], "an input must be NAME=VALUE"),
        ("steps: [{id: a, run: x}]", ["--timeout", "3m"], "--timeout is for commands"),
        ("steps: [{id: a, run: x}]", ["--store", "nonsense:"], "names no store"),
    ],
)
def test_bad_input_is_one_clear_error_and_changes_nothing(cli: Console, text: str, args: list[str], words: str) -> None:
    said = cli("run", write(cli.folder, text), *args)
    assert (said.code, said.out) == (2, "")
    assert words in said.err.replace("\n  ", " ")
    assert "Traceback" not in said.err
    assert sorted(path.name for path in cli.folder.iterdir()) == ["flow.yaml"]


def test_what_only_shows_when_a_step_runs_fails_that_step_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to("/etc/hostname")
    write(
        tmp_path,
        "steps:\n"
        "- {id: gone, run: no-such-program-at-all}\n"
        "- {id: missing, run: 'true', outputs: [never.txt]}\n"
        "- {id: outside, run: 'true', outputs: [link.txt]}\n"
        "- {id: module, python: 'no_such_module:f'}\n"
        "- {id: function, python: 'json:no_such_function'}\n",
    )
    ran = run("run", "flow.yaml", "--json", cwd=tmp_path)
    reasons = json.loads(ran.out)["reasons"]
    assert ran.code == 1
    assert "there is no program 'no-such-program-at-all' on PATH" in reasons["gone"]
    assert "has not left its output never.txt" in reasons["missing"]
    assert "leads outside the flow's folder" in reasons["outside"]
    assert "there is no module no_such_module" in reasons["module"]
    assert "json has no function no_such_function" in reasons["function"]


def test_a_python_step_that_calls_exit_fails_alone(tmp_path: Path) -> None:
    """In a function, in the module itself, and in a task that an async step has started."""
    (tmp_path / "quitting.py").write_text(
        "import argparse, asyncio, sys\n"
        "def plain(): sys.exit(0)\n"
        "def usage(): argparse.ArgumentParser().parse_args(['--no-such'])\n"
        "async def later(): raise KeyboardInterrupt\n"
        "async def child(): sys.exit(4)\n"
        "async def group(): await asyncio.gather(child())\n"
    )
    (tmp_path / "quits_itself.py").write_text("raise SystemExit(0)\n")
    functions = ("quitting:plain", "quitting:usage", "quitting:later", "quits_itself:f", "quitting:group")
    steps = "".join(f"- {{id: s{number}, python: '{one}', retry: 0}}\n" for number, one in enumerate(functions))
    write(tmp_path, f"steps:\n{steps}- {{id: after, run: touch after, needs: alone}}\n- {{id: alone, run: 'true'}}\n")
    ran = run("run", "flow.yaml", "--json", cwd=tmp_path)
    told = json.loads(ran.out)
    assert (ran.code, told["verdict"], told["steps"]["after"]) == (1, "failed", "done"), ran.err
    assert [told["steps"][f"s{number}"] for number in range(5)] == ["failed"] * 5
    assert "sys.exit(0)" in told["reasons"]["s0"]
    assert "sys.exit(4)" in told["reasons"]["s4"]
    assert len(list((base_of(tmp_path) / "flow" / "receipts").glob("s?-python-1.json"))) == 5


PROTOCOL = """\
#!/bin/sh
echo '{"type":"system","subtype":"init","session_id":"s","tools":[]}'
text='{"type":"text","text":"I could not reach it."}'
echo '{"type":"assistant","message":{"role":"assistant","content":['"$text"']},"session_id":"s"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"I could not reach it.","session_id":"s"}'
exit 1
"""


def test_what_an_agent_said_is_shown_and_not_its_protocol(shell: Shell) -> None:
    (shell.folder / "agent").write_text(PROTOCOL)
    (shell.folder / "agent").chmod(0o755)
    write(shell.folder, "steps: [{id: a, run: ./agent}]")
    said = shell("run", "flow.yaml", code=1).stdout
    assert "    I could not reach it.\n" in said
    assert '{"type"' not in said


@pytest.mark.row("F13")
def test_the_phase_of_a_verification_is_finalize(shell: Shell) -> None:
    slow = "verify: sleep 60, timeout_override: 700ms, retry: 0"
    (shell.folder / "plain.py").write_text("def done(): pass\n")
    write(shell.folder, f"steps: [{{id: a, run: 'true', {slow}}}, {{id: b, python: 'plain:done', {slow}}}]")
    shell("run", "flow.yaml", code=3)
    receipts = [json.loads(path.read_text()) for path in base_of(shell.folder).glob("flow/receipts/?-*-1.json")]
    assert {(one["step_id"], one["status"], one["phase"]) for one in receipts} == {
        ("a", "timeout", "finalize"),
        ("b", "timeout", "finalize"),
    }
    kept = [json.loads(path.read_text()) for path in base_of(shell.folder).glob("flow/receipts/?.1-timeout.json")]
    assert {one["last_known_state"]["phase"] for one in kept} == {"finalize"}


LEAVES = """\
import asyncio, multiprocessing, os, pathlib, subprocess, threading, time
SH = "setsid sleep 600 & sleep 600"
def returns():
    subprocess.Popen(["sleep", "600"])
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
async def aio():
    await asyncio.create_subprocess_exec("sh", "-c", "trap '' TERM; " + SH)
def raises():
    threading.Thread(target=subprocess.run, args=(["sleep", "600"],)).start()
    time.sleep(0.2)
    raise ValueError("no")
def hangs():
    pathlib.Path("hangs").touch()
    subprocess.run(["sh", "-c", SH])
    subprocess.run(["sleep", "600"])
"""


@pytest.mark.row("F2")
def test_processes_that_a_function_started_end_with_its_step_and_its_runner(shell: Shell) -> None:
    (shell.folder / "leaves.py").write_text(LEAVES)
    (shell.folder / "allswell.toml").write_text('scope_grace = "300ms"\n')
    text = "steps:\n- {id: returns, python: 'leaves:returns'}\n- {id: aio, python: 'leaves:aio'}\n"
    write(shell.folder, text + "- {id: raises, python: 'leaves:raises', retry: 0}\n")
    assert shell.json("run", "flow.yaml", code=1)["steps"] == {"returns": "done", "aio": "done", "raises": "failed"}
    assert shell.living() == []
    lines = next(shell.folder.glob(".allswell/runs/*/flow/events.jsonl")).read_text().splitlines()
    ended = [json.loads(line) for line in lines]
    assert {one["step_id"] for one in ended if one["event"] == "step_processes_ended"} == {"returns", "aio", "raises"}
    write(shell.folder, "steps: [{id: hangs, python: 'leaves:hangs', timeout_override: 1s, retry: 0}]\n", "late.yaml")
    shell("run", "late.yaml", code=3)
    assert shell.living() == []
    (shell.folder / "hangs").unlink()
    write(shell.folder, "steps: [{id: hangs, python: 'leaves:hangs'}]\n", "killed.yaml")
    killed = subprocess.Popen([*ALLSWELL, "run", "killed.yaml"], cwd=shell.folder, env=shell.env)
    until(shell.folder / "hangs")
    while len(shell.living()) < 4:
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    write(shell.folder, "steps: [{id: hangs, python: 'leaves:returns'}]\n", "killed.yaml")
    run_ = next(path for path in shell.folder.glob(".allswell/runs/*/run.json") if "killed" in path.read_text()).parent
    shell("resume", run_.name, "--choose", "retry_step")
    assert shell.living() == []


def test_a_run_that_is_running_elsewhere_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "steps: [{id: a, run: [sh, -c, 'touch begun; sleep 60']}]")
    other = start("run", "flow.yaml", cwd=tmp_path)
    until(tmp_path / "begun")
    said = run("resume", base_of(tmp_path).name, cwd=tmp_path)
    assert (said.code, "is running already (process" in said.err) == (2, True)
    other.send_signal(signal.SIGTERM)
    assert other.wait(30) == 130


def test_a_run_that_is_not_there_or_cannot_be_read_is_refused(cli: Console) -> None:
    cli.ok("run", write(cli.folder, "steps: [{id: a, python: 'os:getcwd'}]"))
    said = cli("resume", "r_gone")
    assert (said.code, "there is no folder of a run r_gone" in said.err) == (2, True)
    (base_of(cli.folder) / "run.json").write_text("{torn")
    said = cli("resume", base_of(cli.folder).name)
    assert (said.code, "no record that can be read" in said.err.replace("\n  ", " ")) == (2, True)


# --- at a terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 200])
def test_a_tree_is_drawn_at_a_terminal_and_taken_away_at_the_end(tmp_path: Path, columns: int) -> None:
    write(
        tmp_path,
        "steps:\n"
        "- {id: slow, run: [sh, -c, '$PYTHON -m allswell checkin halfway; sleep 1.5'], env: {PYTHON: "
        + sys.executable
        + "}}\n- {id: m, run: 'true', matrix: {a: [1, 2, 3]}}\n"
        "- {id: last, needs: slow, run: 'true'}\n",
    )
    ran = at_terminal("run", "flow.yaml", cwd=tmp_path, columns=columns)
    assert ran.code == 0
    assert "slow" in ran.out
    assert "left" in ran.out
    assert "m ×3" in ran.out
    assert "“halfway”" in ran.out
    assert "All's well:" in ran.out.split("left")[-1]


# --- by several -------------------------------------------------------------------------------------------------------


def test_another_process_takes_steps_of_the_same_run(tmp_path: Path, pg_url: str) -> None:
    """Two folders, as on two machines, and one store."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    script = 'touch "$1"; while ! test -e ../go; do sleep 0.05; done; pwd'
    values = "matrix: {n: [1, 2, 3, 4]}"
    write(here, f"steps:\n- {{id: a, run: [sh, -c, '{script}', sh, 'begun-{{{{ matrix.n }}}}'], {values}}}\n")
    first = start("run", "flow.yaml", "-j", "2", "--json", "--store", pg_url, cwd=here)
    until(here / ".allswell" / "runs")
    _until_two(here)
    name = base_of(here).name
    words = ("work", "--run", name, "--slots", "2", "--json", "--store", pg_url)
    second = start(*words, cwd=there, stdout=subprocess.PIPE)
    _until_two(there)
    (tmp_path / "go").touch()
    joined, _ = second.communicate(timeout=60)
    assert (first.wait(60), second.returncode, check("work", joined.decode())) == (0, 0, "Joined")
    for folder in (here, there):
        receipts = list((folder / ".allswell" / "runs" / name / "flow" / "receipts").glob("*.json"))
        assert [json.loads(path.read_text())["status"] for path in receipts] == ["done", "done"]
    shown = json.loads(run("show", name, "--json", "--store", pg_url, cwd=here).out)
    assert shown["tasks"] == {"done": 4}


def _until_two(folder: Path) -> None:
    """Wait until two steps have begun in a folder."""
    end = time.monotonic() + patience.SECONDS
    while len(list(folder.glob("begun-*"))) < 2:
        assert time.monotonic() < end, f"nobody works in {folder}"
        time.sleep(0.02)


def test_only_a_flows_run_can_be_joined(cli: Console) -> None:
    cli.ok("submit", "a", "--run", "night")
    assert "has no steps of a flow" in cli("work", "--run", "night").err
    assert "give no COMMAND" in cli("work", "--run", "night", "--", "true").err
