"""`allswell coordinate` killed with kill -9 again and again, over a chat: nothing is lost, nothing is said twice.

`ALLSWELL_COORDINATOR_KILLS=50` kills it more often, on both stores (`make chaos`).
"""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import allswell
from allswell.domain.build.line import AckLine, AuditLine, MergedLine, ReadyLine, RejectLine, TasksLine, read
from allswell.domain.task.model import TaskFilter
from allswell.settings import load
from allswell.testing.chat import ChatRules, ChatServer, Said

KILLS = int(os.environ.get("ALLSWELL_COORDINATOR_KILLS", "0"))
EVERY = " (PROGRESS every 10m)"
USUAL_KILLS = {"sqlite": 5, "postgres": 2}
HERE = "#build"
NEVER = 100_000.0


class Crew(threading.Thread):
    """Two builders who want the same, and an auditor who fails every second component once. They hear everything."""

    def __init__(self, server: ChatServer) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.coordinator = ""
        self.holds: dict[str, str] = {}
        self.wants: dict[str, str] = {}
        self.handed_in: Counter[str] = Counter()
        self.claims: Counter[tuple[str, str]] = Counter()
        self.complete = False
        self.over = False

    def run(self) -> None:
        count = 0
        while not self.over:
            self.server.wait_until(partial(self._is_news, count), NEVER)
            for said in self.server.said[count:]:
                count += 1
                self.hear(said)

    def _is_news(self, count: int) -> bool:
        return self.over or len(self.server.said) > count

    def hear(self, said: Said) -> None:
        if not said.who.startswith("@crew"):
            self.coordinator = said.who
        for line in read(said.content):
            match line:
                case ReadyLine(component, _) if said.who in self.holds:
                    passes = int(component[1:]) % 2 == 0 or self.handed_in[component] > 1
                    self.say("@crew-auditor", f"AUDIT {component} {'PASS' if passes else 'FAIL no tests'}")
                case TasksLine(_, free) if said.who == self.coordinator:
                    for who in ("@crew-a", "@crew-b"):
                        self.claim(who, free)
                case AckLine(component, agent):
                    self.wants.pop(agent, None)
                    self.holds[agent] = component
                    self.hand_in(agent)
                case RejectLine(component, agent) if self.wants.get(agent) == component:
                    del self.wants[agent]
                case AuditLine(component, False) if said.who == self.coordinator:
                    self.hand_in(next(who for who, what in self.holds.items() if what == component))
                case MergedLine(component):
                    self.holds = {who: what for who, what in self.holds.items() if what != component}
                case _:
                    self.complete = self.complete or said.content.endswith("BUILD COMPLETE many")

    def claim(self, who: str, free: tuple[str, ...]) -> None:
        if who not in self.holds and who not in self.wants:
            self.wants[who] = free[0]
            self.claims[free[0], who] += 1
            self.say(who, f"CLAIM {free[0]}")

    def hand_in(self, who: str) -> None:
        component = self.holds[who]
        self.handed_in[component] += 1
        self.say(who, f"PROGRESS {component} 90%\nREADY {component} https://x/{component}")

    def say(self, who: str, text: str) -> None:
        self.server.tell(who, HERE, text)


def begin(folder: Path, server: ChatServer, store: str) -> subprocess.Popen[bytes]:
    words = ["coordinate", "spec.yaml", "--chat", server.url, "--key", "key.pem"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "allswell", *words],
            cwd=folder,
            env={**os.environ, "ALLSWELL_STORE": store},
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)


async def leases(store: str) -> Counter[tuple[str, str]]:
    """How often each builder was given each component, as the store has it."""
    found: Counter[tuple[str, str]] = Counter()
    async with allswell.open(store) as watch:
        for row in await watch.tasks(TaskFilter(role="build.component")):
            found.update((row.task.name, one.agent) for one in await watch.attempts(row.task.id))
    return found


@pytest.mark.row("C8", "C3", "C6")
@pytest.mark.parametrize("kind", USUAL_KILLS)
def test_killed_at_any_moment_the_build_goes_on_and_every_line_is_said_once(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    store = str(request.getfixturevalue("pg_url")) if kind == "postgres" else load(tmp_path).store
    most = KILLS or USUAL_KILLS[kind]
    names = [f"c{number}" for number in range(max(2, most // 2))]
    needs = [f"  - name: {name}\n    depends on: [{names[n - 1]}]\n" for n, name in enumerate(names) if n]
    (tmp_path / "spec.yaml").write_text(f"name: many\ncomponents:\n  - name: c0\n{''.join(needs)}")
    chance = random.Random(20)
    kills = 0
    with ChatServer(ChatRules(spacing=900, replayed=200)) as server:
        crew = Crew(server)
        crew.start()
        process = begin(tmp_path, server, store)
        try:
            while kills < most and not crew.complete:
                # Most moments are just after something was said, by the coordinator or to it.
                seen = len(server.said) + chance.choice([0, 0, 1, 2])
                server.wait_until(lambda seen=seen: len(server.said) > seen or crew.complete, 60)  # type: ignore[misc]
                threading.Event().wait(chance.choice([0, 0.002, 0.01, 0.03, 0.3, 1.0]))
                kill(process)
                kills += 1
                process = begin(tmp_path, server, store)
            server.wait_until(lambda: crew.complete, 60)
            assert process.wait(30) == 0, (tmp_path / "log").read_text()
        finally:
            crew.over = True
            server.notify()
            kill(process)
            crew.join(10)
    assert kills == most
    lines = [line for said in server.said if said.who == crew.coordinator for line in said.content.split("\n")]
    assert all(line.endswith(EVERY) for line in lines if line.startswith(("TASKS", "ACK")))
    ours = Counter(line.removesuffix(EVERY) for line in lines)
    granted = asyncio.run(leases(store))
    assert sorted(component for component, _ in granted) == sorted(names)  # each had one builder, and none was lost
    for name in names:
        assert ours[f"MERGED {name}"] == 1
        assert ours[f"TASKS many {name}"] == 1
        assert ours[f"AUDIT {name} FAIL no tests"] == int(name[1:]) % 2
        acks = {line: times for line, times in ours.items() if line.startswith(f"ACK {name} ")}
        assert acks == {f"ACK {name} {who}": 1 for component, who in granted if component == name}
        for who in ("@crew-a", "@crew-b"):  # every claim has its answer, and one
            answers = ours[f"ACK {name} {who}"] + ours[f'REJECT {name} {who} "already claimed"']
            assert answers == crew.claims[name, who]
    assert ours["BUILD COMPLETE many"] == 1
    others = [
        line for line in ours if not re.match(r"ACK|REJECT c\d+ @crew-. \"already|MERGED|TASKS|AUDIT|BUILD", line)
    ]
    assert others == []
