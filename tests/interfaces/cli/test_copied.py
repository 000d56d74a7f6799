"""A printed command can be copied: typed into a real shell as it was printed, it is about the same thing."""

from __future__ import annotations

import re
import shlex

import pytest

from allswell.domain.ids import RunId, TaskId
from allswell.domain.notify.alert import alert_for
from allswell.domain.question import AnswerAction, Option
from allswell.domain.rules.event import Event
from tests.interfaces.cli.shell import Shell

NAME = """it's a "task"; echo $HOME `id` \\ *"""
_PRINTED = re.compile(r"allswell (?:why|show|recover|retry|cancel|run --resume|diff|logs|dismiss)\b[^\n]*")


def typed_again(shell: Shell, said: str) -> list[str]:
    """Every command of ours in a text that only looks, typed into a shell as it stands; all of them."""
    found = [line.rstrip(" `.") for line in _PRINTED.findall(said)]
    for line in found:
        words = shlex.split(line)
        if words[1] in ("why", "show", "diff", "logs") or (words[1:2] == ["recover"] and len(words) == 3):
            done = shell.sh(line)
            assert done.returncode in (0, 2), (line, done)
            assert "no such" not in done.stderr, (line, done)
            assert "there is no task" not in done.stderr, (line, done)
    return found


def test_what_run_show_why_and_recover_print_can_be_copied(shell: Shell) -> None:
    done = shell("run", "--name", NAME, "--", "sh", "-c", "echo half > 'a file'; exit 7", code=7)
    said = [done.stderr, shell(code=3).stdout]
    said += [shell(*words).stdout for words in (("why", NAME), ("show", NAME), ("recover", NAME), ("receipts",))]
    found = typed_again(shell, "\n".join(said))
    assert any(words[:2] == ["allswell", "recover"] and words[2] == NAME for words in map(shlex.split, found)), found
    wrong = shell("recover", "no such task's name", code=2)
    assert "Traceback" not in wrong.stderr


def test_a_file_with_a_blank_in_its_name_is_named_so_that_it_can_be_checked(shell: Shell) -> None:
    file = shell.folder / "my flow's.yaml"
    file.write_text("name: x\nsteps:\n  - {id: a, use: b}\n  - {id: c, use: d}\n")
    said = shell("run", file.name, code=2).stderr
    (line,) = re.findall(r"`(allswell check [^`]*)`", " ".join(said.split()))
    assert shlex.split(line)[2] == file.name
    hint = shell("run", "my program", code=2).stderr
    assert "allswell run -- 'my program'" in hint


@pytest.mark.parametrize("name", [NAME, "plain"])
def test_alerts_name_commands_that_can_be_copied(name: str) -> None:
    failed = Event("task_failed", TaskId("t_1"), RunId("r_1"), data={"reason": "failed", "message": "no"})
    line = alert_for(failed, name, []).text.splitlines()[-1]
    assert shlex.split(line)[:2] == ["allswell", "why"]
    assert shlex.split(line)[-1] == name
    data = {"question": "q_@my service's.1", "text": "?", "service": "my service's", "reason": "401", "cause": "auth"}
    asked = alert_for(Event("question_asked", data=data), "", [Option("go on", "Go", AnswerAction.RETRY)])
    way = next(line for line in asked.text.splitlines() if "allswell answer" in line)
    assert shlex.split(way.partition("    (")[0]) == ["allswell", "answer", "q_@my service's.1", "go on"]
