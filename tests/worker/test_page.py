"""The page's screen of workers: queues, processes, and messages that are put before an operator with their buttons."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from allswell.domain.worker.message import Message
from allswell.worker import Permanent
from tests.interfaces.http.served import serving
from tests.interfaces.web.scene import HOSTILE
from tests.interfaces.web.test_screens import shown
from tests.interfaces.web.visit import logged_in
from tests.worker.stage import Stage, until

ASKED = "SELECT id FROM allswell.question WHERE closed_at IS NULL AND id LIKE %s"


@pytest.mark.row("W5")
def test_a_message_is_settled_by_its_button(stage: Stage, tmp_path: Path) -> None:
    worker = stage.worker()

    @worker.handler("work")
    def work(_message: Message, _connection: psycopg.Connection[Any]) -> None:
        raise Permanent("NO_STOCK", f"nothing is left {HOSTILE}")

    message = stage.send("work", "a part")
    with serving(tmp_path, store=stage.url) as served:
        operator = logged_in(served)
        with worker:
            until(lambda: stage.execute(ASKED, f"q_:{stage.queue}.%"), "it is asked about")
            text = shown(operator, "/worker", "NO_STOCK", f"Queue {stage.queue}", f"<b>{message}</b> of the queue")
            process = f">{os.getpid()}</th>".encode()
            until(lambda: process in operator.get("/worker").body, "the process that works on it has its word")
            shown(operator, "/worker", 'class="mark-of healthy"')
        action = re.search(rf'action="(/questions/[^"]*{stage.queue}[^"]*/answer)"', text)
        assert action is not None
        assert operator.post(action[1], {"option": "cancel"}).status == 303
        text = shown(operator, "/worker", "1 answered, not yet applied", "no process works on it", "by key operator")
        assert f'id="m-{stage.queue}-{message}"' in text
        with worker:
            until(lambda: (stage.trouble(message) or ("", "", 0))[0] == "cancelled", "it is carried out")
        stage.send("work", "nobody is there for it")
        text = shown(operator, "/worker", "1 can be read now", "the oldest for", "no process works on it")
        assert "NO_STOCK" not in text.split("Queue ")[0]
        assert not re.search(r"postgresql://[^*<]*:[^*<]+@", shown(operator, "/settings", "store"))
