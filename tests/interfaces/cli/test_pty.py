"""Every command at a real terminal, narrow and wide: everything fits, nothing breaks, and what comes next is said.

The names are those that agents give: long, in several scripts, with what a terminal would act upon.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from allswell.interfaces.cli import app
from allswell.interfaces.cli.rendering import width_of
from allswell.store.files import user_name
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.upkeep import Ran, at_terminal

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MOVE = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")
SHOWN_ELSEWHERE = {
    "demo": "tests/interfaces/cli/test_demo.py plays it",
    **dict.fromkeys(
        ("worker", "worker setup", "worker status"), "tests/interfaces/cli/test_worker.py has the server for it"
    ),
    "serve": "tests/interfaces/http/ calls it",
    "mcp": "tests/interfaces/mcp/ speaks to it",
    "coordinate": "tests/interfaces/cli/test_coordinate.py talks to it",
    **dict.fromkeys(("build-agent", "audit-agent"), "tests/interfaces/cli/test_members.py has a chat for them"),
}
LONG = "summarise the minutes of the meeting about the migration of the database, all four hundred pages of them"
WIDE = "名前が日本語のタスクで、とても長いので切らなければならないもの"
AGENT = "an agent with quite a long name"
QUESTION = "どちらのテーブルを移行しますか? 一つ目はスキーマ public にあり、二つ目はスキーマ legacy にあります。" * 2
FLOW = """\
steps:
  - {id: a-step-with-a-name-that-is-as-long-as-the-name-of-one-may-be, run: [echo, 名前が日本語のタスク]}
  - {id: b, run: make everything that there is to be made and then some more, needs: \
a-step-with-a-name-that-is-as-long-as-the-name-of-one-may-be}
"""


class Terminal:
    """Somebody at a terminal of this width, who has typed these commands so far."""

    def __init__(self, folder: Path, columns: int) -> None:
        self.folder = folder
        self.columns = columns
        self.typed: set[str] = set()

    def __call__(self, *args: str, code: int = 0, env: Mapping[str, str] = {}) -> Ran:
        """Type a command, and hold what it says to what every command must keep."""
        self.typed.add(" ".join(args[:2]) if " ".join(args[:2]) in app.commands().named else args[0] if args else "")
        said = at_terminal(*args, cwd=self.folder, columns=self.columns, **env)
        out = COLOUR.sub("", said.out)
        assert said.code == code, said.out
        assert out.strip(), args
        assert "Traceback" not in out, out
        assert "bug of Allswell's" not in out, out
        if args[:1] in (("drill",), ("run",), ("resume",)):
            out = MOVE.sub("", out)  # a bar, or a tree that is drawn anew, moves the cursor
        else:
            assert "\x1b" not in out, f"{args}: something was sent that is neither text nor colour: {out!r}"
        if "--json" not in args:
            for line in out.split("\n"):
                shown = line.rstrip("\r").rpartition("\r")[2]
                assert width_of(shown) <= self.columns, f"{args} wrote a line of {width_of(shown)}: {shown!r}"
        return Ran(said.code, out)


def _flows(allswell: Terminal) -> None:
    """What is done with flow files."""
    (allswell.folder / "flow.yaml").write_text(FLOW)
    assert "the longest path" in allswell("graph", "flow.yaml").out
    assert "has failed" in allswell("run", "flow.yaml", code=1).out
    run = next((allswell.folder / ".allswell" / "runs").iterdir()).name
    allswell("show", run)
    assert "exit code" in allswell("resume", run, code=1).out


def _tasks_and_questions(allswell: Terminal) -> None:
    assert "Nothing here yet" in allswell().out + allswell("tasks").out
    assert "allswell submit NAME" in " ".join(allswell("why", "x", code=75).out.split())  # wherever a line ends
    run = ("--run", "the long night in which everything is done", "--run-timeout", "8h")
    first = _id(allswell("submit", LONG, "--role", "reader", *run, "--payload", f'{{"url": "https://x/{"a" * 120}"}}'))
    second = _id(allswell("submit", WIDE, "--critical"))
    third = _id(allswell("submit", "third", "--needs", LONG, "--needs", WIDE))
    allswell("submit", "unclaimed", "--needs", "nobody knows this one, however near one looks for it", code=2)
    assert "the answer was" not in allswell("claim", "--agent", AGENT).out

    held = {"ALLSWELL_TASK": first, "ALLSWELL_TOKEN": "1", "ALLSWELL_AGENT": AGENT}
    allswell("checkin", "half of it is here, " * 12, "--progress", "0.5", env=held)
    allswell("checkin", "--progress", "7", code=2, env=held)
    command: tuple[str, ...]
    for command in (("tasks",), ("watch", "--once"), ("why", first), ("show", first), ("events",), ("runs",), ()):
        allswell(*command)
    options = ("-o", f"public={WIDE}", "-o", "leave=Leave it")
    asked = _id(allswell("ask", QUESTION, *options, "--wait", "0s", code=3, env=held))
    assert "your" not in allswell("checkin", code=4, env=held).out
    allswell("done", code=4, env=held)
    assert f"answer {asked}" in allswell("questions").out
    for command in (("why", asked), ("show", asked), ("why", third), ("watch", "--once"), ("tasks", "--all")):
        allswell(*command)
    for wrong, code in ((("",), 2), ((), 3), (("answer", asked, "nonsense"), 2)):
        allswell(*wrong, code=code)
    assert "stays open" in allswell("dismiss", asked).out
    assert "1 dismissed question holds 2 tasks" in allswell().out
    assert "Answered: public." in allswell("answer", asked, "public", env={"USER": "grace"}).out
    assert f"→ public, answered by {user_name(os.geteuid())}" in allswell("questions", "--all").out
    told = allswell("claim", "--agent", AGENT, "--role", "reader").out
    assert "the answer was: public" in told
    assert WIDE[:10] in told

    held["ALLSWELL_TOKEN"] = "2"
    assert "is ready for another agent" in allswell("release", "wrong machine, " * 12, env=held).out
    allswell("claim", "--agent", AGENT, "--lease", "1m", "--role", "reader")
    held["ALLSWELL_TOKEN"] = "3"
    limit = ("--class", "rate_limit", "--retry-after", "4m")
    assert "can be claimed again in" in allswell("fail", "slow down, " * 12, *limit, env=held).out
    allswell("fail", "x", "--class", "netwrok", code=2, env=held)
    allswell("claim", "--agent", "bob")
    allswell("done", '"a result"', "--task", second, "--token", "1")
    allswell("cancel", LONG, "not needed any more, " * 12)
    for command in (("verify", second), ("cancel", LONG)):
        allswell(*command, code=2)
    assert "is submitted again, as t_" in allswell("retry", LONG, "--with-dependents").out.replace("\n", " ")
    allswell("retry", first, code=2)
    assert "The run the long night" in allswell("cancel", run[1]).out
    for command in (
        ("show", first),
        ("why", first),
        ("why", run[1]),
        ("runs",),
        ("events", "-n", "100"),
        ("tasks", "-a"),
    ):
        allswell(*command)
    assert "nothing to claim" in allswell("claim", "--agent", "bob", code=5).out
    allswell("config")
    allswell("config", "agent_timeout")
    allswell("config", "agent_timeuot", code=2)
    allswell("check")
    allswell("doctor")
    assert "complete" in allswell("completion", "bash").out
    allswell("drill", "--hours", "0.1")


def _run_and_recover(allswell: Terminal) -> None:
    assert "No receipts" in allswell("receipts").out
    assert "nothing to recover" not in allswell("recover", LONG, code=2).out
    said = allswell("run", "--name", LONG, "--", "sh", "-c", f"echo {WIDE} > '{WIDE}'; exit 7", code=7).out
    receipt = said.partition("allswell show ")[2].split()[0]
    assert "failed" in allswell("receipts").out
    assert WIDE[:10] in allswell("show", receipt).out
    assert "--into DIR" in allswell("recover", receipt).out
    assert "1 file written" in allswell("recover", receipt, "--into", "back").out
    assert "1 file changed" in allswell("diff", LONG, "--stat").out  # the diff itself is shown as git has it
    allswell("diff", "nobody", code=2)
    allswell("run", "--json", "--name", "talker", "--", "sh", "-c", f"echo '{LONG}{WIDE}' >&2; exit 1", code=1)
    assert WIDE[:8] in allswell("logs", "talker").out.replace("\n", "")
    allswell("run", "--", "no such command, however near one looks for it", code=2)
    _flows(allswell)


def _watch_over_a_fleet(allswell: Terminal) -> None:
    assert "no agents are set up here" in allswell("up", code=2).out
    assert "would be" in allswell("init", "--agent", "claude", "--dry-run").out
    command = 'command = ["sh", "-c", "echo $0; sleep 0.3", "{prompt}"]'
    (allswell.folder / "allswell.toml").write_text(f'[agents."{AGENT}"]\n{command}\nrole = "painter"\n')
    allswell("submit", LONG, "--role", "painter")
    assert "takes" in allswell("up", "--drain").out
    assert "no agent has the role" in allswell("up", "--role", "panter", code=2).out
    assert "not running" in allswell("agents").out
    task = _id(allswell("submit", WIDE, "--role", "writer"))
    allswell("claim", "--agent", AGENT, "--role", "writer")
    told = allswell("agents").out
    assert ("0/3" in told) == (allswell.columns > 80)
    assert WIDE[:6] in told
    held = {"ALLSWELL_TASK": task, "ALLSWELL_TOKEN": "1", "ALLSWELL_AGENT": AGENT}
    assert allswell("request", "nobody", LONG, "--no-wait", env=held).out.startswith("t_")
    allswell("request", "nobody", LONG, "--timeout", "200ms", env=held, code=1)
    oracle = ("--agent", "oracle")
    allswell("inbox", *oracle, code=5)
    asking = _id(allswell("request", "oracle", LONG, "--kind", "handoff", "--no-wait", env=held))
    assert asking in allswell("inbox", *oracle).out
    allswell("respond", asking, WIDE, *oracle)
    allswell("respond", asking, "again", *oracle, code=2)
    asking = _id(allswell("request", "oracle", LONG, "--kind", "handoff", "--no-wait", env=held))
    allswell("decline", asking, WIDE, *oracle)
    assert "Nothing missed, stalled, timed out or open." in allswell("tracking").out
    assert "Timeout waiting for nobody" in allswell("comms").out
    allswell("work", "--role", "nobody", "--drain", "--", "true")
    allswell("work", code=2)
    _told(allswell)


def _told(allswell: Terminal) -> None:
    """Somebody outside who cannot be told."""
    assert "No sink is set up" in allswell("sinks").out
    (allswell.folder / "allswell.toml").write_text(
        '[sinks.a-sink-with-a-name-that-is-quite-long]\nkind = "webhook"\nurl = "https://hooks.invalid/"\n'
        'secret_env = "A_VARIABLE_THAT_NOBODY_HAS_SET"\n'
    )
    assert "webhook" in allswell("sinks").out
    assert "is not set, or empty" in " ".join(allswell("sinks", "check", code=1).out.split())
    allswell("sinks", "run", code=2)
    assert "needs no setup" not in allswell("sinks", "setup", "nobody", code=2).out
    allswell("alerts", "test", code=2)
    assert "nothing is stored for a sink" in " ".join(allswell("sinks", "forget", "nobody", code=2).out.split())
    assert "Nothing was recorded about nobody" in allswell("agents", "--ledger", "nobody").out
    made = allswell(
        "key", "create", "a-key-with-a-name", "--right", "agent", "--right", "viewer", "--role", "*", "--expires", "90d"
    )
    assert "awk_a-key-with-a-name_" in made.out
    assert "not shown again" in made.out
    assert "in 89d" in allswell("key", "list").out
    assert "/enter?link=awl_a-key-with-a-name_" in allswell("key", "link", "a-key-with-a-name").out
    assert "is revoked" in allswell("key", "revoke", "a-key-with-a-name").out
    assert "have stopped working" in allswell("key", "revoke-links").out
    session = ("--client", "claude", "--id", "7f99863e", "--pid", str(os.getpid()))
    allswell("session", "waits", *session, "--kind", "permission_prompt", "--text", QUESTION)
    assert "waiting for" in allswell("agents").out
    allswell("session", "ends", *session)
    assert "Nothing here needs" in allswell("trust", "--yes").out
    assert "is not parked" in allswell("unpark", "anthropic", code=2).out
    for command in (("deliveries",), ("deliveries", "retry"), ("deliveries", "drop", "--all")):
        assert "Nothing" in allswell(*command).out


def _id(said: Ran) -> str:
    """The id on the first line."""
    return said.out.splitlines()[0]


SCENES: dict[Callable[[Terminal], None], str] = {
    _tasks_and_questions: "submit claim checkin tasks watch why show events runs ask done questions answer release "
    "fail cancel retry dismiss verify config check doctor completion drill",
    _run_and_recover: "receipts recover diff logs run show graph resume",
    _watch_over_a_fleet: "up,init,submit,agents,claim,request,inbox,respond,decline,tracking,work,comms,"
    "sinks,sinks check,sinks run,sinks setup,sinks forget,"
    "alerts test,trust,unpark,deliveries,deliveries retry,deliveries drop,key create,key link,key list,key revoke,"
    "key revoke-links,session",
}
"""What is played at a terminal, and the commands that are typed in it."""


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("scene", SCENES)
def test_every_command_at_a_terminal(tmp_path: Path, columns: int, scene: Callable[[Terminal], None]) -> None:
    allswell = Terminal(tmp_path, columns)
    scene(allswell)
    assert allswell.typed - {""} == _commands(SCENES[scene])


def _commands(listed: str) -> set[str]:
    """Commands by their names; where one has two words, commas stand between them."""
    return set(listed.split(",") if "," in listed else listed.split())


def test_no_command_is_left_out() -> None:
    typed = set().union(*map(_commands, SCENES.values()))
    assert typed == set(app.commands().named) - set(SHOWN_ELSEWHERE), "a command nobody has looked at"


@pytest.mark.parametrize("columns", [80, 200])
def test_help_fits(cli: Console, columns: int) -> None:
    cli.patch.setenv("COLUMNS", str(columns))
    for name in ("", *app.commands().named):
        for line in cli.ok(*name.split(), "--help").out.splitlines():
            assert width_of(line) <= columns, (name, line)
