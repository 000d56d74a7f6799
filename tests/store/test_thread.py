"""A thread that works off calls: which one is trusted again after it was stuck."""

from __future__ import annotations

import asyncio
import threading

import pytest

from allswell.errors import Unavailable
from allswell.store.thread import WorkThread


@pytest.mark.realtime
@pytest.mark.parametrize("trusted_again", [True, False])
def test_a_thread_that_comes_back_is_trusted_again_where_there_can_be_no_other(*, trusted_again: bool) -> None:
    let = threading.Event()

    async def main() -> None:
        thread = WorkThread("test", trusted_again=trusted_again)
        with pytest.raises(Unavailable, match=r"did not answer within 0\.05 s"):
            await thread.call(lambda: let.wait(30), timeout=0.05, what="a call")
        with pytest.raises(Unavailable, match="still stuck"):
            await thread.call(lambda: None, timeout=30, what="a call")
        back = threading.Event()
        thread.post(back.set)
        let.set()
        assert back.wait(30)
        if trusted_again:
            assert await thread.call(lambda: "back", timeout=30, what="a call") == "back"
        else:
            assert thread.abandoned
        thread.close()

    asyncio.run(main())
