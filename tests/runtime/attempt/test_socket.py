"""The socket of an attempt: the agent's words reach its own lease and no other, whatever is sent."""

import asyncio
import contextlib
import socket
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from allswell.domain.agents.denied import NOTHING_DENIED, Denied
from allswell.domain.agents.evidence import EvidenceKind
from allswell.domain.agents.quota import Quota
from allswell.domain.question import AnswerAction, Option
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.errors import LeaseLost, Refused, Unavailable
from allswell.runtime import agent_socket as said
from allswell.runtime.agent_socket import LONGEST, AnyWord, SocketReply, say
from allswell.runtime.attempt import AttemptRunner, End, launch
from allswell.runtime.attempt.control import ControlHandler, QuotaTracker
from allswell.runtime.attempt.progress import ProgressMonitor
from allswell.timing.clock import SystemClock
from tests import patience
from tests.runtime.attempt.stage import Stage, stage

WAITING = (
    "echo $ALLSWELL_SECRET > secret; echo $ALLSWELL_SOCKET > socket.tmp; mv socket.tmp socket;"
    " while [ ! -e go ]; do sleep 0.02; done"
)
_SECRETS: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _outsiders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests themselves speak, from outside of the attempt."""
    monkeypatch.setattr(launch, "_outsiders", True)


async def _begin(here: Stage, attempt: AttemptRunner) -> tuple[asyncio.Task[object], str]:
    running = asyncio.ensure_future(attempt.run())
    await here.until((here.folder / "socket").exists)
    path = (here.folder / "socket").read_text().strip()
    _SECRETS[path] = (here.folder / "secret").read_text().strip()
    return running, path


async def _say(path: str, word: AnyWord) -> SocketReply:
    return await asyncio.get_running_loop().run_in_executor(None, say, path, word, _SECRETS[path])


def test_a_check_in_is_noted_and_answered_with_orders(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            lease = await here.lease()
            order = here.order("sh", "-c", WAITING)
            attempt = AttemptRunner(
                order, lease, here.home, on_evidence=here.seen.append, orders=lambda: {"compact": True}
            )
            running, path = await _begin(here, attempt)
            reply = await _say(path, said.CheckInMessage(note="half of it", progress=0.5))
            assert reply.orders is not None
            assert reply.orders.remaining_ms is not None
            assert 0 < reply.orders.remaining_ms <= 60_000
            assert bytes(reply.orders.more["compact"]) == b"true"
            row = await here.watch.task(lease.task)
            assert row is not None
            assert row.lease is not None
            assert (row.lease.note, row.lease.progress) == ("half of it", 0.5)
            assert any(seen.sign is EvidenceKind.CHECKIN and "half of it" in seen.what for seen in here.seen)
            (here.folder / "go").touch()
            await running
            with pytest.raises(Unavailable, match="does not answer"):
                await _say(path, said.CheckInMessage())

    asyncio.run(main())


def test_done_is_durable_when_it_is_answered_and_the_command_may_then_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell(WAITING + "; exit 3")
            running, path = await _begin(here, attempt)
            await _say(path, said.DoneMessage(result=msgspec.Raw(b'{"pages": 12}')))
            assert await here.watch.result(attempt.lease.task) == {"pages": 12}
            (here.folder / "go").touch()
            await running
            assert attempt.outcome is not None
            assert (attempt.outcome.end, attempt.outcome.said, attempt.outcome.exit_code) == (End.DONE, "done", 3)
            with pytest.raises(Unavailable):
                await _say(path, said.CheckInMessage())

    asyncio.run(main())


def test_a_command_that_does_not_end_after_its_last_word_is_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell(WAITING, leave=300)
            running, path = await _begin(here, attempt)
            await _say(path, said.FailMessage(failure=Failure(ErrorClass.VALIDATION, "no such table")))
            with pytest.raises(LeaseLost):
                await _say(path, said.CheckInMessage(note="too late"))
            await running
            assert attempt.outcome is not None
            assert (attempt.outcome.end, attempt.outcome.said) == (End.FAILED, "fail")
            assert attempt.outcome.receipt is not None

    asyncio.run(main())


def test_a_question_asked_while_going_on_is_answered_with_the_orders(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell(WAITING)
            running, path = await _begin(here, attempt)
            reply = await _say(path, said.AskMessage(text="Which table?", hold=True))
            assert reply.question is not None
            id_ = reply.question.id
            await here.watch.answer(id_, "reply", "public")
            told = (await _say(path, said.CheckInMessage())).orders
            assert told is not None
            assert told.answers == ({"question": id_, "choice": "reply", "answer": "public"},)
            looked = await _say(path, said.LookMessage(question=id_))
            assert looked.question is not None
            assert looked.question.choice == "reply"
            (here.folder / "go").touch()
            await running

    asyncio.run(main())


def test_a_socket_speaks_for_its_own_lease_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            other = await here.lease("other")
            attempt = await here.shell(WAITING)
            running, path = await _begin(here, attempt)
            with pytest.raises(Refused, match="and no other"):
                await _say(path, said.DoneMessage(task=other.task))
            with pytest.raises(LeaseLost):
                await _say(path, said.CheckInMessage(token=7))
            asked = await other.ask("?", hold=True)
            with pytest.raises(Refused, match="not a question of this task"):
                await _say(path, said.LookMessage(question=asked))
            (here.folder / "go").touch()
            await running

    asyncio.run(main())


@pytest.mark.parametrize(
    "message",
    [b"\n", b"{}\n", b"nonsense\n", b'{"verb": "rm"}\n', b'{"verb": "checkin", "x": 1}\n', b"[" * 150_000 + b"\n"],
)
def test_whatever_is_sent_is_answered_and_the_next_one_is_served(tmp_path: Path, message: bytes) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell(WAITING)
            running, path = await _begin(here, attempt)
            reply = await asyncio.get_running_loop().run_in_executor(None, _raw, path, message)
            assert reply["code"] == "bad_message"
            await _say(path, said.CheckInMessage())
            (here.folder / "go").touch()
            await running

    asyncio.run(main())


def test_a_message_without_an_end_is_cut_off(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell(WAITING)
            running, path = await _begin(here, attempt)
            reply = await asyncio.get_running_loop().run_in_executor(None, _raw, path, b"x" * (LONGEST + 70_000))
            assert reply["code"] == "too_large"
            await _say(path, said.CheckInMessage())
            (here.folder / "go").touch()
            await running

    asyncio.run(main())


async def _checked_in_at(here: Stage, attempt: AttemptRunner) -> int | None:
    row = await here.watch.task(attempt.lease.task)
    assert row is not None
    assert row.lease is not None
    return row.lease.checkin_at


@pytest.mark.row("O2")
def test_beyond_its_quota_an_attempt_is_refused_but_for_check_ins_which_are_merged(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            quota = Quota(requests=1, questions=1, bytes=100_000)
            attempt = await here.attempt(replace(here.order("sh", "-c", WAITING), quota=quota))
            running, path = await _begin(here, attempt)
            for word in (said.AskMessage(text="Which?", hold=True), said.RequestMessage(role="critic", name="look")):
                await _say(path, word)
                with pytest.raises(Refused, match="used up its 1 ") as refused:
                    await _say(path, word)
                assert refused.value.code == "over_quota"
            for number in range(100):
                reply = await _say(path, said.CheckInMessage(note=f"{number} " + "x" * 10_000, progress=number / 100))
                assert reply.orders is not None
            told = [entry.event async for entry in here.watch.events() if entry.event.kind == "task_checked_in"]
            assert 5 <= len(told) <= 11, "the notes that the quota has room for"
            assert attempt.standing.answer is not None
            assert "99 x" in attempt.standing.answer.what
            before = await _checked_in_at(here, attempt)
            await _say(path, said.CheckInMessage(note="the answer to what was asked"))
            while await _checked_in_at(here, attempt) == before:
                await asyncio.sleep(0.02)
            (here.folder / "go").touch()
            await running

    asyncio.run(main())


def test_messages_that_never_end_cost_the_room_of_one_however_many_begin_them(tmp_path: Path) -> None:
    taken = 0

    async def push(line: socket.socket) -> None:
        nonlocal taken
        loop = asyncio.get_running_loop()
        for _ in range((LONGEST >> 16) - 1):
            await loop.sock_sendall(line, b"x" * 65_536)
            taken += 65_536

    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell(WAITING)
            running, path = await _begin(here, attempt)
            lines = [socket.socket(socket.AF_UNIX) for _ in range(30)]
            for line in lines:
                line.setblocking(False)
                line.connect(path)
            pushing = [asyncio.ensure_future(push(line)) for line in lines]
            for _ in range(3_000):  # the desk and those who push take turns on one loop, until nothing more is taken
                await asyncio.sleep(0)
            assert taken < 5 * LONGEST, f"{taken:,} bytes of messages that are none"
            await _say(path, said.CheckInMessage(note="and the others are heard"))
            for task, line in zip(pushing, lines, strict=True):
                task.cancel()
                line.close()
            (here.folder / "go").touch()
            await running

    asyncio.run(main())


class HookRecorder(ProgressMonitor):
    """Notes what a hook reports."""

    def __init__(self) -> None:
        self.used: list[said.ToolMessage] = []

    def hear_hook(self, used: said.ToolMessage) -> None:
        self.used.append(used)


async def none_denied() -> Denied:
    return NOTHING_DENIED


def test_of_calls_that_a_hook_reports_at_once_one_is_looked_at_in_each_turn_of_the_loop(tmp_path: Path) -> None:
    """Thirty at a time, again and again, held other agents of the fleet up for two seconds."""

    async def main() -> None:
        async with stage(tmp_path) as here:
            seen = HookRecorder()
            used = seen.used
            handler = ControlHandler(await here.lease(), QuotaTracker(Quota(), SystemClock()), seen, none_denied)
            calls = [said.ToolMessage(name="Bash", call=str(number)) for number in range(30)]
            saying = asyncio.gather(*map(handler.hear, calls))
            most = 0
            while not saying.done():
                before = len(used)
                await asyncio.sleep(0)
                most = max(most, len(used) - before)
            await saying
            assert (len(used), most) == (30, 1)

    asyncio.run(main())


def test_what_a_hook_reports_and_an_agent_offers_is_bounded_before_it_is_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            running, path = await _begin(here, await here.shell(WAITING))
            for long in ('"' + "x" * 600_000 + '"', "[" + "{}," * 200_000 + "{}]"):
                with pytest.raises(Refused, match="an input may have 524,288 bytes") as refused:
                    await _say(path, said.ToolMessage(name="Bash", input=msgspec.Raw(long.encode())))
                assert (refused.value.code, refused.value.where) == ("too_large", "input")
            many = tuple(Option(f"k{number}", "x", AnswerAction.RETRY) for number in range(51))
            with pytest.raises(Refused, match="at most 50 options"):
                await _say(path, said.AskMessage(text="Which?", options=many, hold=True))
            deep = b'{"a":' * 900 + b"1" + b"}" * 900
            for depth in range(0, 900, 50):
                await _say(path, said.ToolMessage(name="x", input=msgspec.Raw(deep[5 * depth : len(deep) - depth])))
            (here.folder / "go").touch()
            await running

    asyncio.run(main())


def _raw(path: str, message: bytes) -> dict[str, str]:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(20)
        line.connect(path)
        with contextlib.suppress(BrokenPipeError):  # it may have been answered and cut off before its end
            line.sendall(message)
        answer = b""
        while not answer.endswith(b"\n"):
            answer += line.recv(65_536)
        return msgspec.json.decode(answer)


def test_lines_of_a_protocol_are_progress_and_name_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            line = '{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]},"session_id":"s-1"}'
            attempt = await here.shell(f"echo plain words; echo '{line}'; exit 1")
            outcome = await attempt.run()
            assert [seen.what for seen in here.seen if seen.sign is EvidenceKind.PROTOCOL] == ["claude: tool_use Bash"]
            assert outcome.receipt is not None
            assert outcome.receipt.session == "claude:s-1"
            assert outcome.receipt.advice.resume == ("claude --resume s-1",)

    asyncio.run(main())


@pytest.mark.row("O2")
def test_what_an_agent_says_while_it_is_being_started_is_told_to_the_store_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell("sleep 60")
            attempt._gathering.heard(EvidenceKind.PROTOCOL, "claude: system init")
            running = asyncio.ensure_future(attempt.run())
            row = await here.watch.task(attempt.lease.task)
            while row is None or row.lease is None or row.lease.checkin_at is None:
                await asyncio.sleep(0.01)
                row = await here.watch.task(attempt.lease.task)
            attempt.stop("enough", grace=0)
            await running

    asyncio.run(asyncio.wait_for(main(), patience.SECONDS))


def test_the_environment_says_what_an_agent_needs_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("ALLSWELL_STORE", "postgresql://secret")

    async def main() -> None:
        async with stage(tmp_path) as here:
            script = "import os; print(*sorted(k for k in os.environ if k.startswith('ALLSWELL') or 'KEY' in k))"
            order = replace(here.order(sys.executable, "-c", script), keep_transcript=False)
            await (await here.attempt(order)).run()
            names = ["AGENT", "ATTEMPT", "DEADLINE", "MARKER", "SECRET", "SOCKET", "TASK", "TOKEN"]
            assert here.printed.decode().split() == [f"ALLSWELL_{name}" for name in names]
            assert list(here.home.transcripts.iterdir()) == []

    asyncio.run(main())
