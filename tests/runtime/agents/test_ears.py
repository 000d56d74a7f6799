"""What is heard in an agent's output, however it comes."""

import asyncio

import pytest

from allswell.domain.agents.refusal import UsageLimit
from allswell.domain.agents.usage import Usage
from allswell.runtime.agents import OutputListeners, OutputParser

SPINNER = [b"\r| thinking", b"\r/ thinking", b"\r- thinking"] * 5_000
LIMIT = b"You've hit your usage limit. Try again in 3 seconds."


async def listen(pieces: list[bytes]) -> tuple[list[UsageLimit], list[str], int]:
    limits: list[UsageLimit] = []
    checkpoints: list[str] = []
    ears = OutputParser(OutputListeners(checkpoints.append, limits.append, lambda _: None))
    most = 0
    for piece in pieces:
        ears(1, piece)
        most = max(most, len(ears._rest[1]))
    await asyncio.sleep(0)
    ears.last()
    await asyncio.sleep(0)
    return limits, checkpoints, most


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b""])
def test_a_spinner_is_not_a_line_that_grows_and_what_comes_after_it_is_heard(end: bytes) -> None:
    limits, _, most = asyncio.run(listen([*SPINNER, b"\r" + LIMIT + end]))
    assert [limit.after for limit in limits] == [3_000]
    assert most < 100


def test_a_checkpoint_with_the_ends_of_another_system_is_whole() -> None:
    text = "CHECKPOINT: it\r\nProgress: 60%\r\nCurrent Activity: tests\r\nBlockers: none\r\nEstimated Remaining: 2 min"
    whole = asyncio.run(listen([text.encode() + b"\r\n"]))
    # Cut in the middle of a line's end, too.
    cut = asyncio.run(listen([text[:15].encode(), text[15:].encode() + b"\r", b"\n"]))
    assert whole[1] == cut[1] == [text.replace("\r", "")]


def test_how_much_of_its_context_is_left_is_heard_where_its_size_is_known() -> None:
    said = b'{"type":"assistant","message":{"usage":{"input_tokens":150000}}}\n'

    async def main(window: int | None) -> list[Usage]:
        heard: list[Usage] = []
        ears = OutputParser(OutputListeners(lambda _: None, lambda _: None, heard.append), window)
        ears(1, said)
        await asyncio.sleep(0)
        return heard

    assert asyncio.run(main(200_000)) == [Usage(25.0)]
    assert asyncio.run(main(None)) == []
