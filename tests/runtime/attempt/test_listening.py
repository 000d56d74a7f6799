"""What is heard in an agent's output, however it comes."""

import asyncio
import os
from pathlib import Path

import pytest

from allswell.domain.agents.refusal import UsageLimit
from allswell.domain.agents.usage import Usage
from allswell.runtime.attempt import SharedSampler
from allswell.runtime.attempt.launch import LaunchSpec, OutputListeners
from allswell.runtime.attempt.progress import ProgressMonitor
from allswell.timing.clock import SystemClock

SPINNER = [b"\r| thinking", b"\r/ thinking", b"\r- thinking"] * 5_000
LIMIT = b"You've hit your usage limit. Try again in 3 seconds."


class Heard:
    """What was told of an output that came in these pieces."""

    def __init__(self, pieces: list[bytes], window: int | None = None) -> None:
        self.limits: list[UsageLimit] = []
        self.checkpoints: list[str] = []
        self.usage: list[Usage] = []
        self.most = 0
        """Bytes that were kept between two pieces."""
        asyncio.run(self._listen(pieces, window))

    async def _listen(self, pieces: list[bytes], window: int | None) -> None:
        listeners = OutputListeners(self.checkpoints.append, self.limits.append, self.usage.append, window)
        order = LaunchSpec(("agent",), "agent", str(Path.cwd()), {}, listeners=listeners)
        sampler = SharedSampler()
        monitor = ProgressMonitor(order, None, SystemClock(), lambda _: None, sampler)
        source, into = os.pipe()
        reader = monitor.reader(source, None)
        for piece in pieces:
            os.write(into, piece)
            reader.turn()
            self.most = max(self.most, len(reader._rest))
        os.close(into)
        reader.close()
        await asyncio.sleep(0)
        monitor.end()
        sampler.close()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b""])
def test_a_spinner_is_not_a_line_that_grows_and_what_comes_after_it_is_heard(end: bytes) -> None:
    heard = Heard([*SPINNER, b"\r" + LIMIT + end])
    assert [limit.after for limit in heard.limits] == [3_000]
    assert heard.most < 100


def test_a_checkpoint_with_the_ends_of_another_system_is_whole() -> None:
    text = "CHECKPOINT: it\r\nProgress: 60%\r\nCurrent Activity: tests\r\nBlockers: none\r\nEstimated Remaining: 2 min"
    whole = Heard([text.encode() + b"\r\n"])
    # Cut in the middle of a line's end, too.
    cut = Heard([text[:15].encode(), text[15:].encode() + b"\r", b"\n"])
    assert whole.checkpoints == cut.checkpoints == [text.replace("\r", "")]


def test_a_line_that_is_too_long_is_skipped_to_its_end() -> None:
    heard = Heard([b"x" * 60_000, b"y" * 60_000, LIMIT + b"\n", LIMIT + b"\n"])
    assert len(heard.limits) == 1
    assert heard.most < 70_000


def test_how_much_of_its_context_is_left_is_heard_where_its_size_is_known() -> None:
    said = b'{"type":"assistant","message":{"usage":{"input_tokens":150000}}}\n'
    assert Heard([said], 200_000).usage == [Usage(25.0)]
    assert Heard([said]).usage == []
