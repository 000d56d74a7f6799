"""Completion: what could be typed next, in a real bash too, and nothing but that."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allswell.interfaces.cli import app
from allswell.interfaces.cli.commands.completion import SCRIPTS
from tests import patience
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.upkeep import environment


def offered(cli: Console, *words: str, kind: str = "bash") -> list[str]:
    """What is offered for the last word."""
    return cli.ok("--complete", kind, *words).out.splitlines()


def test_commands_and_options_are_offered(cli: Console) -> None:
    assert offered(cli, "ta") == ["tasks"]
    first_words = list(dict.fromkeys(name.split()[0] for name in app.commands().names))
    assert offered(cli, "") == first_words
    assert offered(cli, "worker", "s") == ["status", "setup"]
    assert offered(cli, "tasks", "--st") == ["--state", "--store"]
    assert offered(cli, "tasks", "--json", "--j") == []  # once is enough
    assert offered(cli, "tasks", "--state", "held", "--state=done", "--sta") == [
        "--state"
    ]  # of these there may be more
    assert offered(cli, "--ver") == ["--version"]
    assert offered(cli, "nonsense", "") == []
    assert offered(cli, "run", "--", "") == []
    assert offered(cli) == first_words


def test_values_are_offered_where_they_are_known(cli: Console) -> None:
    assert offered(cli, "submit", "x", "--if-need-fails", "") == ["skip", "run"]
    assert offered(cli, "completion", "b") == ["bash"]
    assert offered(cli, "tasks", "--state", "he") == ["held"]
    assert offered(cli, "tasks", "-s", "he") == ["held"]
    assert offered(cli, "tasks", "--state", "=", "he") == ["held"]  # as bash takes it apart
    assert "held" in offered(cli, "tasks", "--state", "=")
    assert offered(cli, "tasks", "--state=he", kind="zsh") == ["--state=held"]
    assert offered(cli, "tasks", "--state=he", kind="fish") == ["--state=held"]
    assert offered(cli, "fail", "x", "--class", "net") == ["network"]
    assert offered(cli, "config", "agent_t") == ["agent_timeout"]
    assert offered(cli, "events", "--kind", "task_subm") == ["task_submitted"]


def test_what_the_store_has_is_offered(cli: Console) -> None:
    assert offered(cli, "show", "") == []  # there is no store, and none is made
    assert not cli.database.exists()
    task = cli.submit("changelog")
    other = cli.submit("of two words", "--run", "nightly")
    assert offered(cli, "show", task[:-1]) == [task]
    assert offered(cli, "why", "change") == ["changelog"]
    assert set(offered(cli, "cancel", "t_")) == {task, other}
    assert offered(cli, "show", "of") == [], "a word that needs quotes is none"
    (run,) = [one["run_id"] for one in cli.ok("runs", "--json").json["runs"]]
    assert offered(cli, "tasks", "--run", "") == [run]
    assert offered(cli, "tasks", "--run", "", kind="fish") == [f"{run}\tnightly"]
    cli.claim("ada")
    question = cli.ok("ask", "now: or later?", "-o", "now=Now", "-o", "later=Later", "--hold").out.split()[0]
    assert offered(cli, "answer", "") == [question]
    assert offered(cli, "answer", "", kind="zsh") == [f"{question}:now: or later?"]
    assert offered(cli, "answer", question, "l") == ["later"]
    elsewhere = f"sqlite:///{cli.database}"
    cli.patch.chdir("/")
    assert offered(cli, "answer", "--store", elsewhere, "") == [question]


@pytest.mark.parametrize("url", ["gopher://x", "sqlite:////proc/nowhere/x.db", "postgresql://127.0.0.1:1/x"])
def test_whoever_types_is_not_disturbed(cli: Console, url: str) -> None:
    said = cli("--complete", "bash", "show", "--store", url, "")
    assert (said.code, said.out, said.err) == (0, "", "")
    (cli.folder / "allswell.toml").write_text("nonsense")
    said = cli("--complete", "bash", "show", "")
    assert (said.code, said.out, said.err) == (0, "", "")


# --- in a shell -------------------------------------------------------------------------------------------------------


def test_a_script_is_printed_or_put_into_place(cli: Console) -> None:
    cli.patch.setenv("HOME", str(cli.folder))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        cli.patch.delenv(name, raising=False)
    cli.patch.setenv("SHELL", "/usr/bin/zsh")
    assert cli.ok("completion").out == SCRIPTS["zsh"]
    assert cli.ok("completion", "bash", "--json").json["script"] == SCRIPTS["bash"]
    (cli.folder / ".bashrc").write_text("alias a=b")
    for _ in range(2):
        cli.ok("completion", "bash", "--install")
    script = cli.folder / ".local" / "share" / "allswell" / "completion.bash"
    assert script.read_text() == SCRIPTS["bash"]
    assert (cli.folder / ".bashrc").read_text() == f"alias a=b\nsource {script}\n"
    cli.ok("completion", "fish", "--install")
    assert (cli.folder / ".config" / "fish" / "completions" / "allswell.fish").read_text() == SCRIPTS["fish"]
    cli.patch.setenv("SHELL", "/bin/tcsh")
    assert "which shell?" in cli("completion").err
    cli.patch.setenv("HOME", "/proc/nowhere")
    said = cli("completion", "fish", "--install")
    assert said.code == 2
    assert "/proc/nowhere" in said.err


@contextmanager
def bash(folder: Path) -> Iterator[int]:
    """An interactive bash in a folder, as its terminal sees it."""
    ours, theirs = pty.openpty()
    here = str(Path(sys.executable).parent)
    env = environment(
        PATH=f"{here}:{os.environ['PATH']}",
        PS1="> ",
        TERM="dumb",
        HOME=str(folder),
        HISTFILE="",
        ALLSWELL_TRUST=str(folder),
    )
    child = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        yield ours
    finally:
        child.kill()
        child.wait(patience.SECONDS)
        os.close(ours)


def until(terminal: int, text: str) -> str:
    """What the terminal shows until it shows this."""
    seen = ""
    while text not in seen:
        seen += os.read(terminal, 65_536).decode()
    return seen


def test_a_real_bash_completes(cli: Console) -> None:
    task = cli.submit("a")
    with bash(cli.folder) as terminal:
        until(terminal, "> ")
        os.write(terminal, b"bind 'set bell-style none'; source <(allswell completion bash); echo rea''dy\n")
        until(terminal, "ready\r\n")
        for typed, shown in (
            ("allswell que\t", "allswell questions "),
            ("allswell tasks --sta\t", "allswell tasks --state "),
            ("allswell tasks --state=he\t", "allswell tasks --state=held "),
            ("allswell submit x --if-need-fails s\t", "allswell submit x --if-need-fails skip "),
            ("allswell show t_\t", f"allswell show {task} "),
        ):
            os.write(terminal, typed.encode())
            until(terminal, shown)
            os.write(terminal, b"\x15")  # and take it away again
