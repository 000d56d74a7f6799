"""A scripted agent that speaks ACP, by the library's agent side; what it sends has the shapes that real ones send.

tests/runtime/agents/test_acp_recorded.py holds each of its frames to recordings of claude-agent-acp and codex-acp.

Run as `python acp_agent.py SCRIPT`, or in the same process (`ScriptedAgent`). A script is parts with commas between
them, each with arguments behind colons; behind `//` stands that of a session which is gone on with. What it is told is
noted in the file that `ACP_TOLD` names, a line each.
"""

# ruff: noqa: ANN401 - what comes is the library's

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import acp
from acp.schema import (
    AgentCapabilities,
    Cost,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionResumeCapabilities,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)

SESSION = "01a1f18c-93de-7311-99db-234df1a7276f"
WAYS = [
    PermissionOption(option_id="always", name="Yes, always", kind="allow_always"),
    PermissionOption(option_id="once", name="Yes", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class ScriptedAgent:
    """Does what its script says, at each prompt anew."""

    def __init__(self, script: str, told: Path | None = None, *, resumes: str = "resume") -> None:
        self.told: list[dict[str, Any]] = []
        self._new, _, self._resumed = script.partition("//")
        self._script = self._new
        self._file = told
        self._resumes = resumes
        self._cancelled = asyncio.Event()
        self._number = 0
        self._client: Any = None

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    def _note(self, what: str, **more: Any) -> None:
        self.told.append({"what": what, **more})
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(json.dumps({"what": what, **more}) + "\n")

    async def initialize(self, protocol_version: int, client_capabilities: Any = None, **_: Any) -> InitializeResponse:
        offered = client_capabilities.model_dump(by_alias=True, exclude_none=True)
        self._note("initialize", offered=offered)
        resume = SessionResumeCapabilities() if self._resumes == "resume" else None
        return InitializeResponse(
            protocol_version=protocol_version if self._resumes != "old" else 0,
            agent_info=Implementation(name="scripted", version="1.0"),
            agent_capabilities=AgentCapabilities(
                load_session=self._resumes == "load", session_capabilities=SessionCapabilities(resume=resume)
            ),
        )

    async def new_session(self, cwd: str, **more: Any) -> NewSessionResponse:
        self._note("new_session", cwd=cwd)
        if self._new.startswith("login"):
            raise acp.RequestError.auth_required()
        return NewSessionResponse(session_id=SESSION)

    async def resume_session(self, session_id: str, cwd: str, **_: Any) -> ResumeSessionResponse:
        self._note("resume_session", session=session_id, cwd=cwd)
        if self._resumed == "forgotten":
            raise acp.RequestError.resource_not_found(session_id)
        self._script = self._resumed or self._new
        return ResumeSessionResponse()

    async def load_session(self, session_id: str, cwd: str, **_: Any) -> LoadSessionResponse:
        self._note("load_session", session=session_id, cwd=cwd)
        self._script = self._resumed or self._new
        await self._send(acp.update_agent_message_text("said long ago"))
        return LoadSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._note("cancel", session=session_id)
        self._cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        self._note("prompt", session=session_id, text="".join(block.text for block in prompt))
        for part in filter(None, self._script.split(",")):
            name, *words = part.split(":")
            stop = await getattr(self, f"_{name}")(*words)
            if name in ("hang", "stop"):
                return PromptResponse(stop_reason=stop)
        return PromptResponse(
            stop_reason="end_turn", usage=Usage(total_tokens=12, input_tokens=2, output_tokens=3, cached_read_tokens=7)
        )

    async def _send(self, update: Any) -> None:
        await self._client.session_update(SESSION, update)

    # --- parts --------------------------------------------------------------------------------------------------------

    async def _say(self, text: str) -> None:
        half = len(text) // 2
        for piece in (text[:half], text[half:]):
            await self._send(acp.update_agent_message_text(piece.replace("|", "\n")))

    async def _think(self, text: str) -> None:
        await self._send(acp.update_agent_thought_text(text))

    async def _plan(self, text: str) -> None:
        await self._send(acp.update_plan([acp.plan_entry(text)]))

    async def _begin(self, command: str) -> str:
        self._number += 1
        id_ = f"call_{self._number}"
        await self._send(
            acp.start_tool_call(id_, "Terminal", kind="execute", status="pending", raw_input={}, content=[])
        )
        about = [acp.tool_content(acp.text_block("what it is about"))]
        await self._send(acp.update_tool_call(id_, title=command, raw_input={"command": command}, content=about))
        return id_

    async def _end(self, id_: str, text: str, status: Any = "completed") -> None:
        content = [acp.tool_content(acp.text_block(text))]
        await self._send(acp.update_tool_call(id_, status=status, content=content, raw_output=text))

    async def _tool(self, command: str, brought: str = "ok") -> None:
        await self._end(await self._begin(command), brought)

    async def _circle(self, times: str) -> None:
        for _ in range(int(times)):
            await self._tool("cat lexer.py", "x = 1")
            await asyncio.sleep(0.02)

    async def _usage(self, used: str, size: str, cost: str) -> None:
        spent = Cost(amount=float(cost), currency="USD")
        await self._send(UsageUpdate(session_update="usage_update", used=int(used), size=int(size), cost=spent))

    async def _ask(self, command: str, *without: str) -> None:
        id_ = await self._begin(command)
        call = ToolCallUpdate(tool_call_id=id_, title=command, kind="execute", raw_input={"command": command})
        ways = [way for way in WAYS if way.kind not in without]
        self._note("permission_asked")
        answer = await self._client.request_permission(SESSION, call, ways)
        outcome = answer.outcome.model_dump(by_alias=True)
        self._note("permission", **outcome)
        allowed = outcome.get("optionId") == "once"
        await self._end(id_, "made" if allowed else "not made", "completed" if allowed else "failed")
        await self._say("It was allowed." if allowed else "It was refused.")

    async def _hang(self) -> Any:
        self._note("hang")
        await self._cancelled.wait()
        return "cancelled"

    async def _deaf(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        await asyncio.Event().wait()

    async def _stop(self, reason: Any) -> Any:
        return reason

    async def _fail(self, text: str) -> None:
        raise acp.RequestError.internal_error({"message": text.replace("|", ":")})

    async def _die(self) -> None:
        os._exit(3)

    async def _print(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    async def _long(self) -> None:
        await asyncio.to_thread(os.write, 1, b'{"x": "' + b"x" * (9 << 20) + b'"}\n')

    async def _reach(self) -> None:
        """Uses what no client of ours offers."""
        for call in (
            self._client.read_text_file(SESSION, "/etc/passwd"),
            self._client.write_text_file(SESSION, "x", "text"),
            self._client.create_terminal(SESSION, "id"),
        ):
            try:
                self._note("reached", answer=str(await call))
            except acp.RequestError as error:
                self._note("refused", code=error.code)


if __name__ == "__main__":
    log = os.environ.get("ACP_TOLD")
    asyncio.run(acp.run_agent(ScriptedAgent(sys.argv[1], Path(log) if log else None), use_unstable_protocol=True))  # type: ignore[arg-type]
