"""`allswell doctor`: make the trouble, see the line."""

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from allswell.domain.agents.status import Presence
from allswell.domain.ids import Millis
from allswell.domain.rules.event import Position
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.engine.watch import Watch
from allswell.runtime.host import boot_id
from allswell.runtime.process.identity import pid_namespace
from allswell.testing.sim.process import engine_of
from tests.interfaces.cli.upkeep import HOUR, MINUTE, at_terminal, change, database, environment, run, watch_at

CHECKS = [
    "store",
    "schema",
    "tasks",
    "sweeper",
    "leases",
    "agents",
    "clocks",
    "pool",
    "services",
    "questions",
    "failures",
    "stopped",
    "requests",
    "followers",
    "sinks",
    "disk",
    "settings",
]
FAST = {"ALLSWELL_PACE_SWEEP_MOST": "5ms", "ALLSWELL_DOCTOR_DISK_FREE": "1kB"}
"""No waiting for a second look; and the disk of the machine that tests is not what is tested."""


class Report:
    """What the doctor found, by check."""

    def __init__(self, folder: Path, *args: str, **env: str) -> None:
        ran = run("doctor", "--json", *args, cwd=folder, **{**FAST, **env})
        assert ran.err == ""
        said = json.loads(ran.out)
        assert said["exit"] == ran.code
        self.code = ran.code
        self.findings = {finding["check"]: finding for finding in said["findings"]}

    def verdict(self, check: str) -> str:
        return str(self.findings[check]["verdict"])

    def says(self, check: str) -> str:
        return str(self.findings[check]["says"])

    def amiss(self) -> set[str]:
        """The checks that are not ok."""
        return {check for check in self.findings if self.verdict(check) != "ok"}


def test_a_quiet_watch_is_well(tmp_path: Path) -> None:
    async def night() -> None:
        async with watch_at(tmp_path) as watch:
            await watch.submit("fetch")
            lease = await watch.claim(agent="ada")
            assert lease is not None
            await watch.submit("later", needs=[lease.task])

    asyncio.run(night())
    report = Report(tmp_path)
    assert (report.code, report.amiss()) == (0, set())
    assert list(report.findings) == CHECKS
    assert "due in 5m" in report.says("sweeper")
    ran = run("doctor", cwd=tmp_path, **FAST)
    assert ran.out.endswith("\nAll's well.\n")


def test_where_there_is_no_watch_none_is_made(tmp_path: Path) -> None:
    report = Report(tmp_path)
    assert (report.code, list(report.findings)) == (0, ["store", "settings"])
    assert "nothing here yet" in report.says("store")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_reached_is_exit_75(tmp_path: Path) -> None:
    report = Report(tmp_path, "--store", "postgresql://me:secret@127.0.0.1:1/db")
    assert (report.code, report.verdict("store")) == (75, "bad")
    assert "postgresql://me:***@127.0.0.1:1/db cannot be reached" in report.says("store")
    assert "secret" not in json.dumps(report.findings)


def test_a_url_that_names_no_store_is_a_finding(tmp_path: Path) -> None:
    report = Report(tmp_path, ALLSWELL_STORE="mysql://host")
    assert (report.code, report.verdict("store")) == (1, "bad")
    assert report.findings["store"]["next"] == "allswell config store --store mysql://host"


def test_a_newer_schema_is_told(tmp_path: Path) -> None:
    asyncio.run(submit(tmp_path, "fetch"))
    change(tmp_path, "UPDATE meta SET value = '99'")
    report = Report(tmp_path)
    assert (report.code, report.verdict("schema")) == (1, "bad")
    assert "schema 99" in report.says("schema")


def test_a_file_that_is_no_store_is_told(tmp_path: Path) -> None:
    database(tmp_path).parent.mkdir()
    database(tmp_path).write_text("not a database " * 100)
    report = Report(tmp_path)
    assert (report.code, report.amiss()) == (1, {"schema"})


async def submit(folder: Path, *names: str, ago: int = 0, **fields: object) -> list[str]:
    async with watch_at(folder, ago) as watch:
        return [await watch.submit(name, **fields) for name in names]  # type: ignore[arg-type]


def test_a_server_that_cannot_open_its_store_says_why_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_bytes(b"this is not a database" * 100)
    words = [
        sys.executable,
        "-m",
        "allswell",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--store",
        f"sqlite:///{tmp_path}/no.db",
    ]
    said = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert said.returncode in (2, 75), said
    assert [line[:10] for line in said.stderr.splitlines()] == ["allswell: "], said.stderr


def test_a_task_that_nothing_will_ever_move_is_broken(tmp_path: Path) -> None:
    (task,) = asyncio.run(submit(tmp_path, "fetch"))
    change(tmp_path, "DELETE FROM ready")
    report = Report(tmp_path)
    assert (report.code, report.amiss()) == (1, {"tasks"})
    assert "“fetch” is open, and nothing will ever move it" in report.says("tasks")
    assert report.findings["tasks"]["next"] == f"allswell events --task {task} --json"


def test_timers_that_nobody_sweeps_are_told_with_since_when(tmp_path: Path) -> None:
    async def night() -> None:
        async with watch_at(tmp_path, 2 * HOUR) as watch:
            now = (await watch._engine.store.view_agenda()).now
            await watch.submit("one", not_before=now + HOUR)
            await watch.submit("two", not_before=now + HOUR + MINUTE)

    asyncio.run(night())
    report = Report(tmp_path)
    assert (report.code, report.amiss()) == (1, {"sweeper"})
    assert report.says("sweeper").startswith("Something was due 1h ago and has not happened")
    assert report.findings["sweeper"]["next"] == "allswell watch"
    overdue = report.findings["sweeper"]["data"]["overdue_ms"]
    assert HOUR <= overdue < HOUR + 5 * MINUTE
    assert Report(tmp_path, ALLSWELL_DOCTOR_OVERDUE="3h").code == 0


def test_consequences_that_nobody_works_off_are_told(tmp_path: Path) -> None:
    async def night() -> None:
        async with watch_at(tmp_path, 2 * MINUTE) as watch:
            first = await watch.submit("first")
            await watch.submit("second", needs=[first])
            await finish(watch)

    asyncio.run(night())
    report = Report(tmp_path)
    assert (report.code, report.amiss()) == (1, {"sweeper"})
    assert re.search(r"“first” ended 2m.* ago, and tasks that wait for it were not updated", report.says("sweeper"))


async def finish(watch: Watch) -> None:
    lease = await watch.claim(agent="ada")
    assert lease is not None
    await lease.complete()


def test_a_lease_that_ran_out_unnoticed_is_stale(tmp_path: Path) -> None:
    async def night() -> None:
        async with watch_at(tmp_path, HOUR) as watch:
            await watch.submit("fetch")
            assert await watch.claim(agent="ada", lease="20s") is not None

    asyncio.run(night())
    report = Report(tmp_path)
    assert (report.code, report.amiss()) == (1, {"sweeper"})
    assert "1 lease has ended without being taken back: “fetch”" in report.says("sweeper")
    assert report.findings["sweeper"]["next"] == "allswell watch"


def test_a_supervisor_that_was_killed_is_named(tmp_path: Path) -> None:
    asyncio.run(submit(tmp_path, "fetch"))
    said = Presence("night", "m", "ship", 42, "b", "ns", 7, Millis(1), Millis(1))
    word = msgspec.json.encode(said).decode()
    change(tmp_path, f"INSERT INTO meta VALUES ('kept.supervisor.night', '{word}')")  # noqa: S608 - words of ours
    report = Report(tmp_path)
    assert (report.code, report.amiss()) == (1, {"supervisors"})
    assert "The supervisor night on ship was last heard" in report.says("supervisors")
    assert report.findings["supervisors"]["next"] == "allswell up --name night"
    now = Millis(time.time_ns() // 1_000_000)
    just_now = Presence("night", "m", socket.gethostname(), 1 << 22, boot_id(), pid_namespace(), 7, now, now)
    word = msgspec.json.encode(just_now).decode()
    change(tmp_path, f"UPDATE meta SET value = '{word}' WHERE key = 'kept.supervisor.night'")  # noqa: S608 - words of ours
    assert "has died (last heard " in Report(tmp_path).says("supervisors"), "one of this machine is known to be gone"
    seen = run("agents", cwd=tmp_path).out
    assert f"✗ The supervisor night on {socket.gethostname()} has died" in seen
    assert "\n    allswell up --name night\n" in seen


def test_a_stalled_agent_is_named_and_needs_nobody(tmp_path: Path) -> None:
    asyncio.run(submit(tmp_path, "fetch"))
    change(tmp_path, "INSERT INTO agent VALUES ('ada\x1b[31m', 3, 1, 1, ''), ('bob', 1, 1, 0, '')")
    report = Report(tmp_path)
    assert (report.code, report.amiss()) == (0, set()), "the watch takes its task back by itself"
    assert "is stalled: 3 check-ins missed" in run("doctor", cwd=tmp_path, **FAST).out
    assert report.findings["agents"]["level"] == "waiting"
    assert "\x1b" not in run("doctor", cwd=tmp_path, **FAST).out


def test_a_clock_that_was_set_back_is_told(tmp_path: Path) -> None:
    asyncio.run(submit(tmp_path, "fetch", ago=-HOUR))
    report = Report(tmp_path)
    assert (report.code, report.amiss()) == (1, {"clocks"})
    assert re.search(r"this machine's clock is (1h|59m) behind the last moment in the store", report.says("clocks"))
    assert Report(tmp_path, ALLSWELL_DOCTOR_CLOCK_SKEW="2h").code == 1, "time stands still, however much is tolerated"


def test_tasks_that_nobody_takes_are_told_with_their_role(tmp_path: Path) -> None:
    asyncio.run(submit(tmp_path, "look", "look again", ago=HOUR, role="critic"))
    report = Report(tmp_path)
    assert (report.code, report.amiss()) == (1, {"pool"})
    assert report.says("pool") == "2 tasks of role critic ready for 1h, and no agent takes them"
    assert report.findings["pool"]["next"] == "allswell claim --agent NAME --role critic"
    asyncio.run(submit(tmp_path, "fresh"))
    assert "1 task ready for 0s, and no known agent can take it" in run("doctor", cwd=tmp_path, **FAST).out
    assert Report(tmp_path, ALLSWELL_DOCTOR_UNCLAIMED="2h").code == 0


def test_a_long_queue_before_a_busy_agent_is_no_trouble(tmp_path: Path) -> None:
    async def night() -> None:
        await submit(tmp_path, "one", "two", ago=HOUR)
        async with watch_at(tmp_path) as watch:
            assert await watch.claim(agent="ada") is not None

    asyncio.run(night())
    assert Report(tmp_path).amiss() == set()


def test_a_task_that_could_not_start_before_was_not_forgotten(tmp_path: Path) -> None:
    async def night() -> None:
        (first,) = await submit(tmp_path, "first", ago=HOUR)
        await submit(tmp_path, "second", ago=HOUR, needs=[first])
        async with watch_at(tmp_path) as watch:
            await finish(watch)
            await engine_of(watch).sweeper.sweep()

    asyncio.run(night())
    report = Report(tmp_path)
    assert report.amiss() == set()
    assert (report.findings["pool"]["level"], report.findings["pool"]["about"]) == ("waiting", "")


def test_a_task_whose_service_is_parked_waits_for_the_weather(tmp_path: Path) -> None:
    async def night() -> None:
        await submit(tmp_path, "one", "two", ago=HOUR, services=["anthropic"])
        async with watch_at(tmp_path, MINUTE) as watch:
            lease = await watch.claim(agent="ada")
            assert lease is not None
            limit = Failure(ErrorClass.RATE_LIMIT, "used up", retry_after=3 * HOUR, services=("anthropic",))  # type: ignore[arg-type]
            await lease.fail(limit)

    asyncio.run(night())
    report = Report(tmp_path)
    assert report.amiss() == set()
    assert report.says("pool") == "2 tasks ready, 2 of them wait for something else, none forgotten"
    assert report.says("services").startswith("“anthropic” asked to wait. It is paused for another 2h")
    assert report.says("services").endswith("; 2 tasks wait for it; no attempt is used up")
    assert report.findings["services"]["level"] == "waiting"


def test_a_question_needs_a_human(tmp_path: Path) -> None:
    async def night() -> None:
        async with watch_at(tmp_path, HOUR) as watch:
            await watch.submit("fetch")
            lease = await watch.claim(agent="ada")
            assert lease is not None
            await lease.ask("Which of the two?")

    asyncio.run(night())
    report = Report(tmp_path)
    assert (report.code, report.amiss()) == (3, {"questions"})
    assert report.says("questions") == "ada asked you 1h ago: “Which of the two?”"
    assert report.findings["questions"]["next"].endswith(".1 OPTION")


def test_a_follower_that_stopped_is_behind(tmp_path: Path) -> None:
    async def night() -> None:
        async with watch_at(tmp_path, HOUR) as watch:
            await watch.submit("fetch")
            await watch.submit("again")
            await watch.cancel(await watch.submit("third"))
            store = watch._engine.store
            entries = await store.journal(Position(), 100)
            await store.advance("chat", entries[0].position)
            await store.advance("web", entries[-1].position)

    asyncio.run(night())
    report = Report(tmp_path, ALLSWELL_DOCTOR_UNCLAIMED="2h")
    assert (report.code, report.amiss()) == (3, {"followers"})
    assert report.says("followers").startswith("chat behind by 1h")
    assert [one["follower"] for one in report.findings["followers"]["data"]["behind"]] == ["chat"]


@pytest.mark.parametrize("times, code, verdict", [(2, 3, "warn"), (100, 1, "bad")])
def test_a_full_disk_is_told_before_it_is_full(tmp_path: Path, times: int, code: int, verdict: str) -> None:
    asyncio.run(submit(tmp_path, "fetch"))
    wanted = shutil.disk_usage(tmp_path).free * times
    report = Report(tmp_path, ALLSWELL_DOCTOR_DISK_FREE=str(wanted))
    assert (report.code, report.amiss(), report.verdict("disk")) == (code, {"disk"}, verdict)
    assert report.findings["disk"]["next"] == f"df -h {tmp_path}/.allswell"


def test_settings_that_cannot_work_are_told_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    asyncio.run(submit(tmp_path, "fetch"))
    (tmp_path / "allswell.toml").write_text("stall_threshold = 0\nidel = 1")
    report = Report(tmp_path)
    assert (report.code, report.amiss(), list(report.findings)) == (1, {"settings"}, CHECKS)
    assert f"{tmp_path}/allswell.toml:1: stall_threshold (0) must be at least 1" in report.says("settings")
    assert "did you mean idle?" in report.says("settings")


def test_nothing_is_changed_by_looking(tmp_path: Path) -> None:
    async def night() -> int:
        async with watch_at(tmp_path, HOUR) as watch:
            await watch.submit("fetch")
            await watch.claim(agent="ada", lease="20s")
            return len(await watch._engine.store.journal(Position(), 100))

    before = asyncio.run(night())
    Report(tmp_path)

    async def look() -> int:
        async with watch_at(tmp_path) as watch:
            return len(await watch._engine.store.journal(Position(), 100))

    assert asyncio.run(look()) == before


def test_a_store_on_postgresql_is_looked_at_too(tmp_path: Path, pg_url: str) -> None:
    assert run("submit", "fetch", "--store", pg_url, cwd=tmp_path).code == 0
    report = Report(tmp_path, "--store", pg_url)
    assert (report.code, report.amiss()) == (0, set())
    assert list(report.findings) == [check for check in CHECKS if check != "disk"]


@pytest.mark.parametrize("columns", [80, 200])
def test_the_report_fits_the_terminal(tmp_path: Path, columns: int) -> None:
    asyncio.run(submit(tmp_path, "fetch", ago=HOUR))
    ran = at_terminal("doctor", cwd=tmp_path, columns=columns, **FAST)
    assert ran.code == 1
    assert "\x1b[1;31mbad" in ran.out
    text = re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
    assert max(map(len, text.splitlines())) <= columns
    assert text.rstrip().endswith("1 thing is broken.")
    assert {"timers", "ready"} <= set(text.split()), "the names of these checks in JSON are not words for people"
    assert not {"sweeper", "pool"} & set(text.split())


def test_alerts_without_links_are_said_with_what_to_set(tmp_path: Path) -> None:
    sinks = '[sinks.phone]\nkind = "alerts"\nroutes = { info = ["ntfy://localhost/night"] }\n'
    https = "to the https address of `allswell serve`"
    for line, says in {
        "": f"alerts have no links that answer questions: set public_url {https}",
        'public_url = "http://w.example"\n': (
            f"alerts have no links that answer questions: public_url is 'http://w.example'; set it {https}"
        ),
        'public_url = "https://w.example"\n': None,
    }.items():
        (tmp_path / "allswell.toml").write_text(line + sinks)
        report = Report(tmp_path)
        shown = report.findings.get("links")
        assert report.code == 0
        assert (None if shown is None else (shown["says"], shown["verdict"])) == (
            None if says is None else (says, "ok")
        )
    (tmp_path / "allswell.toml").write_text("")
    assert "links" not in Report(tmp_path).findings
