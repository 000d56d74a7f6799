"""`allswell coordinate` as a process of its own: on standard input and output, over a chat server, and killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allswell.interfaces.chat.agentchat import read_key
from allswell.testing.chat import ChatRules, ChatServer
from tests.interfaces.cli.upkeep import environment, run_with
from tests.interfaces.views.outside import check
from tests.runtime.attempt.stage import git

SPEC = """\
name: shop
components:
  - name: db
  - name: api
    depends on: [db]
"""
HERE = "#build"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path


def allswell(folder: Path, *args: str, given: str = "") -> subprocess.CompletedProcess[str]:
    ran = run_with(environment(), *args, cwd=folder, given=given)
    return subprocess.CompletedProcess(args, ran.code, ran.out, ran.err)


@pytest.mark.row("C8")
def test_a_build_on_standard_input_and_output_goes_on_where_it_was_left(folder: Path) -> None:
    first = ["a: CLAIM db", "b: CLAIM db", "a: READY db https://x/1", "a: AUDIT db PASS", "b: audit **db** pass"]
    first += ["who says this", "b: CLAIM api", "b: READY api https://x/2", "x: " + "y" * 100_000]
    ran = allswell(folder, "coordinate", "spec.yaml", "--stdio", given="\n".join(first))
    assert ran.returncode == 1
    assert "1 of 2 components are merged; the same command goes on with it" in ran.stderr
    shown = allswell(folder, "show", "shop").stdout.splitlines()
    assert [line.split() for line in shown[-2:]] == [
        ["db", "merged", "passed", "by", "b"],
        ["api", "held", "b", "open"],
    ]
    alone = allswell(folder)
    assert alone.returncode == 3
    assert "No coordinator runs the build “shop”: start it again, with the same spec" in alone.stdout
    assert alone.stdout.endswith("  Build shop: 1 of 2 merged, 1 held\n    b has api (in audit)\n")
    (build,) = json.loads(allswell(folder, "--json").stdout)["builds"]
    assert (build["coordinated"], build["counts"], build["next"]) == (False, {"merged": 1, "held": 1}, [])
    (told,) = [allswell(folder, "show", "shop", "--json").stdout]
    assert check("show", told) == "ShownRun"
    assert [one["in_audit"] for one in json.loads(told)["build"]["components"]] == [False, True]
    why = allswell(folder, "why", "api").stdout
    assert "It is a component of the build shop." in why
    assert "b has handed it in (https://x/2); another agent has to say AUDIT api PASS or FAIL." in why
    assert "no limit" in (listed := allswell(folder, "tasks").stdout)
    assert "365d" not in listed + why
    why = allswell(folder, "why", "audit of api").stdout
    assert "It is an audit of api in the build shop: b has handed in https://x/2, and may not judge it itself." in why
    answers = [line for line in ran.stdout.splitlines() if "TASKS" not in line]  # an older list may be left out
    assert answers == [
        "coordinator: ACK db a (PROGRESS every 10m)",
        'coordinator: REJECT db b "already claimed"',
        'coordinator: REJECT db a "an agent cannot audit its own build"',
        "coordinator: MERGED db",
        "coordinator: ACK api b (PROGRESS every 10m)",
    ]
    ran = allswell(folder, "coordinate", "spec.yaml", "--stdio", given="a: AUDIT api PASS\n")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "coordinator: MERGED api\ncoordinator: BUILD COMPLETE shop\n"


def test_a_name_is_used_again_and_an_input_that_stays_open_holds_nothing_up(folder: Path) -> None:
    (folder / "spec.yaml").write_text("name: shop\ncomponents:\n  - name: db\n")
    lines = ["a: CLAIM db", "a: READY db https://x/1", "b: AUDIT db PASS"]
    runs = []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "allswell", "coordinate", "spec.yaml", "--stdio"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stdout is not None
        process.stdin.write("\n".join([*lines, ""]).encode())
        process.stdin.flush()
        code = process.wait(60)  # a bridge does not close it
        process.stdin.close()
        runs.append((code, process.stdout.read().decode().splitlines()[-1], process.stderr.read()))
        process.stdout.close()
        process.stderr.close()
    assert runs == [(0, "coordinator: BUILD COMPLETE shop", b"")] * 2


@pytest.mark.parametrize(
    "args, told",
    [
        (["spec.yaml"], "either --chat URL or --stdio"),
        (["spec.yaml", "--stdio", "--chat", "ws://x"], "either --chat URL or --stdio"),
        (["spec.yaml", "--stdio", "--json"], "no room for --json"),
        (["nothing.yaml", "--stdio"], "there is no file or folder nothing.yaml"),
        (["bad.yaml", "--stdio"], "bad.yaml:1:1: components: This is not a spec of a build."),
        (["spec.yaml", "--chat", "http://x"], "is not an address of a chat server"),
        (["spec.yaml", "--chat", "ws://x", "--channel", "build"], "is not a channel"),
        (["spec.yaml", "--stdio", "--limit", "soon"], "--limit 'soon' is not a duration"),
        (["spec.yaml", "--chat", "ws://x", "--key", "open.pem"], "chmod 600"),
    ],
)
def test_what_cannot_be_meant_is_refused(folder: Path, args: list[str], told: str) -> None:
    (folder / "bad.yaml").write_text("steps: []\n")
    read_key(folder / "open.pem")
    (folder / "open.pem").chmod(0o644)
    ran = allswell(folder, "coordinate", *args)
    assert ran.returncode == 2
    assert told in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.row("C4")
def test_a_cycle_needs_a_human(folder: Path) -> None:
    (folder / "spec.yaml").write_text(SPEC.replace("- name: db", "- name: db\n    depends on: [api]"))
    ran = allswell(folder, "coordinate", "spec.yaml", "--stdio", given="a: CLAIM db\n")
    assert ran.returncode == 3
    assert 'coordinator: ERROR "dependency cycle detected: api <-> db"' in ran.stdout
    assert "the build shop waits for you: `allswell questions`" in ran.stderr
    assert "dependency cycle" in allswell(folder, "questions").stdout


@contextmanager
def coordinating(folder: Path, server: ChatServer) -> Iterator[subprocess.Popen[str]]:
    words = ["coordinate", "spec.yaml", "--chat", server.url, "--channel", HERE, "--key", "key.pem", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "allswell", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
        if process.stdout is not None:
            process.stdout.close()


def lines_of(server: ChatServer, who: str) -> list[str]:
    return [line for said in server.said if said.who == who for line in said.content.split("\n")]


@pytest.mark.row("C8")
def test_over_a_chat_server_a_killed_coordinator_goes_on_and_says_nothing_twice(folder: Path) -> None:
    async def scene() -> None:
        with ChatServer(ChatRules(spacing=1_000)) as server:
            with coordinating(folder, server) as process:
                offered = await asyncio.to_thread(
                    server.wait_for, lambda said: said.content.startswith("TASKS shop db")
                )
                ours = offered.who
                server.tell("@a", HERE, "CLAIM db")
                server.advance(1)  # of two at the same moment, the smaller id of a message goes first
                server.tell("@b", HERE, "CLAIM db")
                await asyncio.to_thread(server.wait_for, lambda said: "ACK db @a" in said.content)
                os.killpg(process.pid, signal.SIGKILL)
            server.tell("@a", HERE, "READY db https://x/1")  # said while nobody coordinates
            with coordinating(folder, server) as process:
                server.tell("@b", HERE, "AUDIT db PASS")
                await asyncio.to_thread(server.wait_for, lambda said: "MERGED db" in said.content, 40)
                server.tell("@b", HERE, "CLAIM api")
                await asyncio.to_thread(server.wait_for, lambda said: "ACK api @b" in said.content)
                server.cut(ours)
                server.tell("@b", HERE, "READY api https://x/2")
                server.tell("@a", HERE, "AUDIT api PASS")
                await asyncio.to_thread(server.wait_for, lambda said: "BUILD COMPLETE shop" in said.content)
                assert await asyncio.to_thread(process.wait, 20) == 0
            said = lines_of(server, ours)
            assert said == [
                "TASKS shop db (PROGRESS every 10m)",
                "ACK db @a (PROGRESS every 10m)",
                'REJECT db @b "already claimed"',
                "MERGED db",
                "TASKS shop api (PROGRESS every 10m)",
                "ACK api @b (PROGRESS every 10m)",
                "MERGED api",
                "BUILD COMPLETE shop",
            ]
            assert all(code != "RATE_LIMITED" for _, code in server.refused)

    asyncio.run(scene())
    shown = json.loads(allswell(folder, "runs", "--json").stdout)
    assert shown["runs"][0]["reason"] == "complete"


def test_a_second_coordinator_is_refused_before_it_displaces_the_first(folder: Path) -> None:
    with ChatServer(ChatRules(spacing=50)) as server, coordinating(folder, server):
        server.wait_for(lambda said: said.content.startswith("TASKS shop db"))
        second = allswell(folder, "coordinate", "spec.yaml", "--chat", server.url, "--key", "key.pem")
        assert second.returncode == 2
        assert "coordinates this build" in second.stderr
        assert len(server.identified) == 1
        server.tell("@a", HERE, "CLAIM db")
        server.wait_for(lambda said: "ACK db @a" in said.content)


@pytest.mark.row("C1", "C2", "C5")
@pytest.mark.parametrize("by", ["options", "settings"])
def test_the_figures_of_a_build_are_settings_and_options(folder: Path, by: str) -> None:
    lines = [
        "a: CLAIM db",
        "a: ABORT db x",
        "b: CLAIM db",
        "b: READY db https://x/1",
        "c: AUDIT db FAIL",
        "b: CLAIM db",
    ]
    words: tuple[str, ...] = (
        "--failures",
        "1",
        "--aborts",
        "2",
        "--progress",
        "20s",
        "--misses",
        "2",
        "--window",
        "0",
        "--tasks-every",
        "1m",
    )
    if by == "settings":
        figures = 'audit_failures = 1\naborts = 9\nprogress_every = "20s"\nmisses = 2\ntasks_every = "1m"'
        (folder / "allswell.toml").write_text(f"[build]\n{figures}\n")
        words = ("--aborts", "2")  # an option overrides its setting
    ran = allswell(folder, "coordinate", "spec.yaml", "--stdio", *words, given="\n".join(lines))
    assert "coordinator: ACK db a (PROGRESS every 20s)\n" in ran.stdout
    assert "coordinator: RETRY db\n" in ran.stdout
    assert 'REJECT db b "your work on it has failed 1 audits; leave it to another builder"' in ran.stdout
    why = allswell(folder, "why", "db").stdout
    assert "b may not claim it again" in why
    assert "365d" not in why
    assert "offered when all that it needs is merged: db (free)" in allswell(folder, "why", "api").stdout
    assert allswell(folder, "coordinate", "spec.yaml", "--stdio", "--misses", "0").returncode == 2
    again = ["d: CLAIM db", "d: ABORT db y"]
    ran = allswell(folder, "coordinate", "spec.yaml", "--stdio", *words, given="\n".join(again))
    assert "ESCALATE" in ran.stdout, "given back twice"


def test_told_to_stop_it_leaves_the_build_to_be_gone_on_with(folder: Path) -> None:
    with ChatServer(ChatRules(spacing=50)) as server:
        with coordinating(folder, server) as process:
            server.wait_for(lambda said: said.content.startswith("TASKS shop db"))
            process.terminate()
            out, _ = process.communicate(timeout=20)
            assert process.returncode == 1
        assert [check("coordinate", line) for line in out.splitlines()] == ["Said", "Build"]
        last = json.loads(out.splitlines()[-1])
        assert (last["complete"], [one["state"] for one in last["components"]]) == (False, ["free", "waiting"])
        with coordinating(folder, server):  # at once: the first one has let go
            server.tell("@a", HERE, "CLAIM db")
            server.wait_for(lambda said: "ACK db @a" in said.content, 10)
            glance = allswell(folder)
            assert glance.returncode == 0
            assert glance.stdout.endswith(
                "  Build shop: 0 of 2 merged, 1 held, 1 waiting\n    @a has db (building)\n    Next: api\n"
            )


def test_what_has_passed_is_merged_and_what_does_not_merge_goes_back(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", "-q", "-b", "main", cwd=folder)
    (folder / "spec.yaml").write_text("name: two\ncomponents:\n  - name: db\n  - name: api\n")
    (folder / ".gitignore").write_text(".allswell/\n")
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "first", cwd=folder)
    for component in ("db", "api"):
        git("checkout", "-q", "-b", f"build/{component}", "main", cwd=folder)
        (folder / "same").write_text(component)
        git("add", "-A", cwd=folder)
        git("commit", "-q", "-m", component, cwd=folder)
    git("checkout", "-q", "main", cwd=folder)
    talk = [f"a: CLAIM {c}\na: READY {c} https://x/{c}\nb: AUDIT {c} PASS\n" for c in ("db", "api")]
    words = ("coordinate", "spec.yaml", "--stdio", "--merge")
    git("config", "user.useConfigOnly", "true", cwd=folder)  # no guess from the machine's name
    ran = allswell(folder, *words)
    assert ran.returncode == 2
    assert "git does not know who merges" in ran.stderr
    git("config", "user.name", "c", cwd=folder)
    git("config", "user.email", "c@example.org", cwd=folder)
    ran = allswell(folder, *words, given="".join(talk))
    assert ran.returncode == 1
    assert "coordinator: MERGED db\n" in ran.stdout
    assert "AUDIT api FAIL" in ran.stdout
    assert "it passed, and build/api does not merge; bring it up to date" in ran.stdout
    assert (folder / "same").read_text() == "db"
    assert git("status", "--porcelain", cwd=folder) == ""
    subprocess.run(["git", "merge", "-q", "build/api"], cwd=folder, check=False, capture_output=True)
    begun = git("status", "--porcelain", cwd=folder)
    assert "AA same" in begun
    ran = allswell(folder, *words)
    assert ran.returncode == 1
    assert git("status", "--porcelain", cwd=folder) == begun, "a merge that a human has begun is left alone"
    git("merge", "--abort", cwd=folder)
    git("branch", "-f", "build/api", "main", cwd=folder)
    ran = allswell(folder, *words, given="a: READY api https://x/2\nb: AUDIT api PASS\n")
    assert ran.returncode == 0
    assert "coordinator: BUILD COMPLETE two\n" in ran.stdout
