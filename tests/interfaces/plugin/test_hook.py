"""The hook of the plugin, started as Claude Code and Codex start it, with events as they sent them."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allswell.domain.agents.evidence import EvidenceKind
from allswell.interfaces.plugin import hook
from allswell.interfaces.plugin.install import EVENTS, files_for
from allswell.runtime.attempt import AttemptRunner, End, control
from tests.clients.stand_in import CAPTURED
from tests.interfaces.cli.shell import Shell
from tests.patience import SECONDS
from tests.runtime.attempt.stage import Stage, stage

HOOK = hook.__file__
OURS = "mcp__plugin_allswell_allswell__"


def recorded(client: str) -> dict[str, dict[str, Any]]:
    lines = (CAPTURED / f"{client}-hooks.jsonl").read_text().splitlines()
    return {event["hook_event_name"]: event for event in map(json.loads, lines)}


RECORDED = recorded("claude")
"""One event of each kind, as Claude Code 2.1.197 sent it."""
CODEX = recorded("codex")
"""The same of Codex 0.169.0; its own scene in tests/clients holds them to it."""
START = [sys.executable, "-I", "-S", HOOK]


class Session:
    """A session of a client, as far as its hooks can tell."""

    def __init__(self, folder: Path, client: str = "claude", **env: str) -> None:
        self.client = client
        self.shell = Shell(folder, os.urandom(8).hex())
        self.env = {**self.shell.env, "CLAUDE_PLUGIN_DATA": str(folder / "data"), **env}

    def tells(self, event: str, **fields: object) -> dict[str, Any]:
        """What the hook answers to an event."""
        sent = {"claude": RECORDED, "codex": CODEX}[self.client][event]
        answer: dict[str, Any] = json.loads(self.hears(json.dumps({**sent, **fields}).encode()) or "{}")
        return answer

    def hears(self, text: bytes) -> str:
        """What the hook prints when it is given this; it never fails."""
        allswell = [sys.executable, "-P", "-m", "allswell"]
        done = subprocess.run(
            [*START, self.client, *allswell],
            input=text,
            cwd=self.shell.folder,
            env=self.env,
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
        assert done.stderr == b""
        return done.stdout.decode()

    def uses(self, tool: str, answer: object = None, **given: object) -> dict[str, Any]:
        return self.tells("PostToolUse", tool_name=tool, tool_input=given, tool_response=answer)


# --- a session that has claimed a task --------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_a_session_checks_in_by_working_and_stops_when_it_has_let_go(tmp_path: Path, client: str) -> None:
    session = Session(tmp_path, client)
    shell = session.shell
    id_ = shell("submit", "write it").stdout.strip()
    assert session.uses("Bash") == {}
    assert session.tells("Stop") == {}, "it holds nothing"
    claim = shell.json("claim", "--agent", "ada")
    text = json.dumps({"claims": [claim]})
    assert session.uses(f"{OURS}claim", [{"type": "text", "text": text}]) == {}
    before = shell.json("show", id_)["task"]
    assert session.uses("Bash") == {}
    after = shell.json("show", id_)["task"]
    assert before != after, "a tool that was used is a check-in"
    assert session.uses("Bash") == {}
    assert shell.json("show", id_)["task"] == after, "and not each of them"
    told = session.tells("Stop")
    assert (told["decision"], id_ in told["reason"]) == ("block", True)
    assert session.tells("Stop", stop_hook_active=True) == {}, "it is told once"
    session.uses(f"{OURS}ask", text="?", hold=True)
    assert session.tells("Stop")["decision"] == "block"
    session.uses(f"{OURS}done")
    assert session.tells("Stop") == {}


def test_a_session_that_has_lost_its_lease_is_stopped(tmp_path: Path) -> None:
    session = Session(tmp_path)
    shell = session.shell
    id_ = shell("submit", "write it").stdout.strip()
    claim = shell.json("claim", "--agent", "ada")
    session.uses(f"{OURS}claim", {"structuredContent": {"claims": [claim]}})
    shell("cancel", id_)
    told = session.uses("Edit")
    assert (told["continue"], id_ in told["stopReason"]) == (False, True)
    assert session.uses("Edit") == {}, "there is nothing left to be lost"


def test_codex_goes_on_after_that_and_is_refused_every_call_until_its_next_prompt(tmp_path: Path) -> None:
    session = Session(tmp_path, "codex")
    shell = session.shell
    id_ = shell("submit", "write it").stdout.strip()
    claim = shell.json("claim", "--agent", "ada")
    assert session.tells("PreToolUse") == {}
    session.uses(f"{OURS}claim", {"structuredContent": {"claims": [claim]}})
    shell("cancel", id_)
    assert session.uses("Bash")["continue"] is False
    for _ in range(2):
        answer = session.tells("PreToolUse")["hookSpecificOutput"]
        assert (answer["hookEventName"], answer["permissionDecision"]) == ("PreToolUse", "deny")
        assert "Stop working" in answer["permissionDecisionReason"]
    assert session.tells("PreToolUse", session_id="another") == {}
    assert session.tells("UserPromptSubmit") == {}
    assert session.tells("PreToolUse") == {}
    assert [path.name for path in (tmp_path / "data").iterdir()] == []


# --- harmless ---------------------------------------------------------------------------------------------------------


def test_where_the_watch_cannot_be_reached_the_work_goes_on(tmp_path: Path) -> None:
    session = Session(tmp_path, ALLSWELL_STORE="sqlite:////nowhere/x.db")
    claim = {"task": {"task_id": "t_1"}, "token": 1}
    session.uses(f"{OURS}claim", {"structuredContent": {"claims": [claim]}})
    assert session.uses("Bash") == {}
    assert session.uses(f"{OURS}claim", "not what it should be") == {}


@pytest.mark.parametrize(
    "text",
    [b"", b"no JSON", b"[]", b'{"hook_event_name": 7}', b"[" * 100_000, b'{"session_id": "../x"}', b"\xff" * 9],
    ids=["nothing", "no JSON", "a list", "a number", "deep", "a path", "no Unicode"],
)
@pytest.mark.parametrize("socket", [{}, {"ALLSWELL_SOCKET": "/nowhere/s"}], ids=["alone", "a supervisor that is gone"])
@pytest.mark.parametrize("client", ["claude", "codex"])
def test_whatever_it_is_given_it_says_nothing_and_does_not_fail(
    tmp_path: Path, text: bytes, socket: dict[str, str], client: str
) -> None:
    assert Session(tmp_path, client, **socket).hears(text) == ""
    assert [path.name for path in tmp_path.iterdir()] == []


def test_it_imports_nothing_that_takes_long() -> None:
    """A call of a tool waits for it: of the package nothing is imported, and of the library little."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", HOOK, "codex"], input=b"{}", capture_output=True, check=True
    )
    names = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "json" in names
    assert names & {"allswell", "asyncio", "msgspec", "pathlib", "socket", "subprocess", "typing"} == set()


def test_the_plugin_is_what_claude_code_reads() -> None:
    files = files_for("claude", tools=True)
    hooks = json.loads(files["hooks/hooks.json"])["hooks"]
    assert set(hooks) == set(EVENTS["claude"])
    for (group,), *_ in zip(hooks.values(), strict=True):
        (one,) = group["hooks"]
        assert one["command"] == sys.executable
        hook_words = ["-I", "-S", "${CLAUDE_PLUGIN_ROOT}/hooks/hook.py", "claude"]
        assert one["args"][:4] == hook_words, "no shell, nothing of the folder"
    assert json.loads(files[".claude-plugin/plugin.json"])["name"] == "allswell"
    assert json.loads(files[".mcp.json"])["mcpServers"]["allswell"]["args"][-1] == "mcp"
    assert files["skills/night-watch/SKILL.md"].startswith("---\nname: night-watch\n")
    assert ".mcp.json" not in files_for("claude", tools=False)


def test_the_plugin_is_what_codex_reads(tmp_path: Path) -> None:
    """It starts the hook by the user's shell, whatever its folder is called, and lets it be for 3 s at the end."""
    files = files_for("codex", tools=True)
    hooks = json.loads(files["hooks/hooks.json"])["hooks"]
    assert set(hooks) == set(EVENTS["codex"]) == set(CODEX)
    assert {event: group["hooks"][0]["timeout"] for event, (group,) in hooks.items() if event == "SessionEnd"} == {
        "SessionEnd": 3
    }
    command = hooks["PostToolUse"][0]["hooks"][0]["command"]
    folder = tmp_path / "its ' own $folder"
    (folder / "hooks").mkdir(parents=True)
    (folder / "hooks" / "hook.py").write_text("import sys; print(sys.argv[1:])")
    for shell in ("sh", "bash"):
        env = {**os.environ, "PLUGIN_ROOT": str(folder)}
        said = subprocess.run([shell, "-c", command], env=env, capture_output=True, text=True, check=True).stdout
        assert said.strip() == str(["codex", sys.executable, "-P", "-m", "allswell"])
    assert json.loads(files[".codex-plugin/plugin.json"])["name"] == "allswell"
    server = json.loads(files[".mcp.json"])["mcpServers"]["allswell"]
    assert {"ALLSWELL_SOCKET", "ALLSWELL_SECRET", "ALLSWELL_STORE", "ALLSWELL_KEY"} <= set(server["env_vars"])
    assert ".mcp.json" not in files_for("codex", tools=False)


# --- inside an attempt ------------------------------------------------------------------------------------------------


def event(folder: Path, kind: str, **fields: object) -> str:
    """What a shell types for the hook to hear of an event of Claude Code's."""
    return said_to_hook(folder, "claude", {**RECORDED[kind], **fields})


def codex_event(folder: Path, kind: str, **fields: object) -> str:
    """The same of one of Codex's."""
    return said_to_hook(folder, "codex", {**CODEX[kind], **fields})


def said_to_hook(folder: Path, client: str, sent: dict[str, Any]) -> str:
    path = folder / f"{client}-{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(sent))
    return f"{shlex.join([*START, client])} < {shlex.quote(str(path))}"


async def ended(here: Stage, *typed: str, **limits: int | None) -> AttemptRunner:
    attempt = await here.shell("\n".join(typed), **limits)
    await attempt.run()
    return attempt


def test_a_call_that_the_hook_reports_is_evidence_of_progress(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await ended(here, event(tmp_path, "PostToolUse"), event(tmp_path, "PostToolUseFailure"))
            assert attempt.outcome is not None
            assert attempt.outcome.end is End.DONE
            assert bytes(here.printed) == b""
            steps = [seen.what for seen in here.seen if seen.sign is EvidenceKind.PROTOCOL]
            assert steps == ["hook: Bash(echo hi)", "hook: Read(/nonexist)"]

    asyncio.run(main())


def test_codex_reports_its_calls_and_that_it_waits_for_a_human(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            kinds = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse", "Stop")
            attempt = await ended(here, *[codex_event(tmp_path, kind) for kind in kinds])
            assert attempt.outcome is not None
            assert attempt.outcome.end is End.DONE
            assert bytes(here.printed) == b""
            steps = [seen.what for seen in here.seen if seen.sign is EvidenceKind.PROTOCOL]
            assert steps == ["hook: Bash(touch made)"]
            (waits,) = [one.event async for one in here.watch.events() if one.event.kind == "agent_waits"]
            assert waits.data["kind"] == "permission_request"
            assert waits.data["text"] == "Codex needs your permission to use Bash"

    asyncio.run(main())


def test_a_call_whose_answer_is_bytes_is_evidence_as_well(tmp_path: Path) -> None:
    """A NUL, half a pair of surrogates and more than anybody reads: what no socket takes is not what it sends."""

    async def main() -> None:
        async with stage(tmp_path) as here:
            odd = "\0\ud800" + "x" * 200_000
            typed = event(tmp_path, "PostToolUse", tool_response=odd, tool_use_id=odd, tool_input={"command": odd[:3]})
            await ended(here, typed, event(tmp_path, "PostToolUse", tool_name=odd))
            steps = [seen.what for seen in here.seen if seen.sign is EvidenceKind.PROTOCOL]
            assert len(steps) == 2
            assert steps[0].startswith("hook: Bash(")

    asyncio.run(main())


def test_of_an_agent_whose_output_is_a_protocol_a_call_counts_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            said = shlex.quote(str(CAPTURED / "claude-success.jsonl"))
            await ended(here, f"cat {said}", "sleep 0.3", event(tmp_path, "PostToolUse"))
            assert not any(seen.what.startswith("hook: ") for seen in here.seen)

    asyncio.run(main())


def test_the_same_call_with_the_same_answer_again_and_again_is_no_progress(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            calls = [
                event(tmp_path, "PostToolUse", tool_use_id=f"c{number}", duration_ms=number) for number in range(6)
            ]
            attempt = await ended(here, *calls)
            assert attempt.standing.repeats == "called Bash echo hi 6 times, same answer"
            assert [seen.what for seen in here.seen if seen.sign is EvidenceKind.PROTOCOL][4:] == []

    asyncio.run(main())


def test_an_attempt_that_has_lost_its_lease_is_stopped_at_its_next_tool(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell(
                "trap '' TERM; touch up\nwhile [ ! -e lost ]; do sleep 0.02; done\n"
                f"export CLAUDE_PLUGIN_DATA={tmp_path / 'data'}; "
                f"{codex_event(tmp_path, 'PostToolUse')} > answer; {codex_event(tmp_path, 'PreToolUse')} > refused\n"
                f"{event(tmp_path, 'PostToolUse')} > answer; touch answered",
                grace=5_000,
            )
            running = asyncio.ensure_future(attempt.run())
            await here.until((here.folder / "up").exists)
            await here.watch.cancel(attempt.lease.task)
            await here.until(lambda: attempt.lease.lost)
            (here.folder / "lost").touch()
            await here.until((here.folder / "answered").exists)
            await running
            answer = json.loads((here.folder / "answer").read_text())
            assert answer["continue"] is False
            assert "lease on this task is lost" in answer["stopReason"]
            assert '"deny"' in (here.folder / "refused").read_text(), "Codex has gone on"

    asyncio.run(main())


def test_what_came_for_an_agent_is_told_to_it_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell(
                f"{sys.executable} -m allswell ask --hold 'Which table?'\n"
                "while [ ! -e answered ]; do sleep 0.02; done\n"
                f"{event(tmp_path, 'PostToolUse')} > first\n{event(tmp_path, 'PostToolUse')} > second",
            )
            running = asyncio.ensure_future(attempt.run())
            asked: list[str] = []

            async def question() -> None:
                asked.extend(one.id for one in await here.watch.questions())

            while not asked:
                await question()
                await asyncio.sleep(0.01)
            await here.watch.answer(asked[0], "reply", "public")
            (here.folder / "answered").touch()
            await running
            told = json.loads((here.folder / "first").read_text())["hookSpecificOutput"]
            assert told == {
                "hookEventName": "PostToolUse",
                "additionalContext": f"Your question {asked[0]} was answered: reply: public",
            }
            assert (here.folder / "second").read_text() == ""

    asyncio.run(main())


def test_what_waits_for_a_human_is_in_the_journal_at_once_and_not_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_NOTICES_MOST", 3)

    async def main() -> None:
        async with stage(tmp_path) as here:
            text = "Claude needs your permission to use Bash\n" + "x" * 5_000
            waits = {"hook_event_name": "Notification", "message": text, "notification_type": "permission_prompt"}
            fails = {"hook_event_name": "StopFailure", "error": "server_error", "error_details": "529 Overloaded"}
            typed = [event(tmp_path, "Stop", **waits), *[event(tmp_path, "Stop", **fails)] * 3]
            attempt = await ended(here, *typed)
            kinds = ("agent_waits", "agent_turn_failed")
            found = [one.event async for one in here.watch.events() if one.event.kind in kinds]
            assert len(found) == 3
            assert (found[0].kind, found[0].task, found[0].agent) == ("agent_waits", attempt.lease.task, "ada")
            assert found[0].data["kind"] == "permission_prompt"
            assert found[0].data["text"].startswith("Claude needs your permission to use Bash")
            assert len(found[0].data["text"]) <= 1_000
            assert found[1].data == {"kind": "server_error", "text": "529 Overloaded"}

    asyncio.run(main())
