"""`allswell watch` with Textual, driven by its keys: a real watch on a real SQLite store is behind it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from allswell import Policy, Watch, make_watch
from allswell.app import watch_on
from allswell.domain.agents.status import PRESENCE_PREFIX, AgentSlot, Presence
from allswell.domain.ids import Millis, TaskId
from allswell.domain.task.model import TaskFilter
from allswell.engine.status.live import LiveRow, LiveSection, live
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.rendering import width_of
from allswell.interfaces.tui.actions import DecisionScreen
from allswell.interfaces.tui.app import HelpScreen, LogScreen, LogView, WatchApp
from allswell.interfaces.tui.rows import pieces
from allswell.store.sqlite import SqliteStore
from allswell.testing.faulty import FaultyStore
from allswell.testing.sim.process import engine_of
from tests.interfaces.cli.scene import told
from tests.interfaces.http.served import serving
from tests.interfaces.web import scene as page_scene
from tests.patience import SECONDS

Drive = Callable[[WatchApp, Pilot[None], Watch], Awaitable[None]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a story in it, which nobody changes."""
    path = tmp_path_factory.mktemp("story") / "watch.db"
    told(path)
    return path


@pytest.fixture
def store(story: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of one's own."""
    (tmp_path / ".allswell").mkdir(mode=0o700)
    shutil.copy(story, tmp_path / ".allswell" / "allswell.db")
    return _alone(tmp_path, monkeypatch)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store that is still to be made."""
    return _alone(tmp_path, monkeypatch)


def _alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("ALLSWELL_STORE", raising=False)
    return f"sqlite:///{folder}/.allswell/allswell.db"


async def until(pilot: Pilot[None], holds: Callable[[], object]) -> None:
    """Let the app go on until something holds."""
    async with asyncio.timeout(SECONDS):
        while not holds():
            await pilot.pause()
            await asyncio.sleep(0)


@asynccontextmanager
async def seated(
    watch: Watch, url: str, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[WatchApp, Pilot[None]]]:
    """Somebody sits before the view, and the first look is over."""
    app = WatchApp(watch, CliContext(url, json=False))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.readings)
        yield app, pilot


def driven(url: str, drive: Drive, size: tuple[int, int] = (80, 24)) -> None:
    """Drive the view over this store."""

    async def main() -> None:
        async with watch_on(url, sweeping=False) as watch, seated(watch, url, size) as (app, pilot):
            await drive(app, pilot, watch)

    asyncio.run(main())


def shown(app: WatchApp) -> list[str]:
    """The lines of the list that are on the screen."""
    rows = app.rows
    return [rows.render_line(y).text.rstrip() for y in range(rows.size.height)]


def about(app: WatchApp) -> str:
    """What is told about the chosen row."""
    return str(app.screen_stack[0].query_one("#told", Static).render())


async def look(app: WatchApp, pilot: Pilot[None]) -> None:
    """Have it look again, and wait for that."""
    before = app.readings
    app.look_again()
    await until(pilot, lambda: app.readings > before)


def row(app: WatchApp, part: LiveSection, name: str) -> LiveRow:
    """The row of a part that has this in its name."""
    return next(one for one in app.rows.rows if one.part is part and name in one.name)


async def write(app: WatchApp, pilot: Pilot[None], text: str) -> None:
    """Type a text where the cursor is, all at once, and end it."""
    assert isinstance(app.focused, Input)
    app.focused.value = text
    await pilot.press("enter")


async def choose(app: WatchApp, pilot: Pilot[None], part: LiveSection, name: str) -> LiveRow:
    found = row(app, part, name)
    app.rows.choose(found.key)
    await pilot.pause()
    return found


# --- what is seen -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_problems_stand_first_then_questions_agents_and_tasks_and_all_fits(store: str, size: tuple[int, int]) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        parts = [one.part for one in app.rows.rows]
        assert list(dict.fromkeys(parts)) == list(LiveSection)
        assert parts == sorted(parts, key=list(LiveSection).index)
        lines = shown(app)
        assert lines[0].split()[:2] == ["PROBLEMS", "5"]
        assert any("TASKS 17" in line or "TASKS 18" in line for line in lines)
        assert max(map(width_of, lines)) <= app.rows.size.width
        assert app.query_one(LogView).display is (size[0] >= 120)
        keys = " ".join(str(one.render()) for one in app.query("FooterKey"))
        for name in ("Log", "Answer", "Retry", "Cancel", "Dismiss", "Filter", "Help", "Quit"):
            assert name in keys
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")

    driven(store, drive, size)


@pytest.mark.parametrize("room", [60, 78, 79, 118, 199])
def test_a_row_is_exactly_as_wide_as_there_is_room(room: int) -> None:
    for part in LiveSection:
        one = LiveRow(
            part,
            "t_1",
            "名前が長い " * 30,
            "waiting for a limit",
            "ada " * 20,
            0.5,
            "note " * 40,
            due=Millis(1),
            ahead="x" * 300,
        )
        assert sum(width_of(text) for text, _ in pieces(one, 0, room)) == room, part


def test_each_counts_down_to_what_comes_next(empty: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        await watch.submit("silent", policy=Policy(idle=120_000))
        await watch.submit("called", not_before=await watch.now() + 3_600_000)
        await watch.claim(agent="ada")
        await look(app, pilot)
        held, later = row(app, LiveSection.TASK, "silent"), row(app, LiveSection.TASK, "called")
        assert "it is idle" in held.ahead
        assert "is ready" in later.ahead

        def counted(name: str, left: int) -> str:
            """What stands in the line of a task so long before what comes next for it."""
            due = row(app, LiveSection.TASK, name).due
            assert due is not None
            app.rows.tick(due - left)
            return next(line for line in shown(app) if line.strip().startswith(name))

        assert " 1m 30s " in counted("silent", 90_500)
        assert " 29s " in counted("silent", 29_500)
        assert " 4s late " in counted("silent", -4_500)
        assert " 59m " in counted("called", 3_599_000)

    driven(empty, drive)


def test_what_only_a_supervisor_knows_counts_too(empty: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        task = await watch.submit("quiet")
        await watch.claim(agent="ada")
        now = await watch.now()
        post = AgentSlot(
            "ada", "ada", "command", task=task, token=1, condition="quiet", proof_at=now, idle_at=Millis(now + 60_000)
        )
        there = Presence(
            "main", "m", "here", 1, "b", "n", 1, now, now, posts=(post, AgentSlot("bea", "bea", "command"))
        )
        assert await watch.swap(f"{PRESENCE_PREFIX}main", None, msgspec.json.encode(there).decode())
        await look(app, pilot)
        for part, name in ((LiveSection.AGENT, "ada"), (LiveSection.TASK, "quiet")):
            found = row(app, part, name)
            assert (found.due, found.ahead) == (
                now + 60_000,
                "is ended as idle (1m without progress), unless it shows progress",
            )
        assert row(app, LiveSection.AGENT, "bea").state == "idle"
        await choose(app, pilot, LiveSection.TASK, "quiet")
        await until(pilot, lambda: "ended as idle" in about(app))

    driven(empty, drive)


def test_what_agents_say_is_data(empty: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        await watch.submit("[red]x[/red] [@click=quit]")
        lease = await watch.claim(agent="[bold]ada")
        assert lease is not None
        await lease.ask("which? [/] \x1b]0;owned\x07\x1b[2J")
        await look(app, pilot)
        seen = "\n".join([*shown(app), about(app), app.export_screenshot()])
        assert "\x1b" not in seen
        assert "\x07" not in seen
        assert "[red]x[/red]" in "\n".join(shown(app))
        await choose(app, pilot, LiveSection.QUESTION, "which")
        await until(pilot, lambda: "which? [/]" in about(app))
        await pilot.press("a")
        assert isinstance(app.screen, DecisionScreen)
        assert "\x1b" not in app.export_screenshot()

    driven(empty, drive)


# --- what is done -----------------------------------------------------------------------------------------------------


@pytest.mark.row("O9")
def test_a_question_is_answered_in_words_and_what_is_refused_loses_nothing(store: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        asked = await choose(app, pilot, LiveSection.QUESTION, "Two tables")
        await pilot.press("a")
        screen = app.screen
        assert isinstance(screen, DecisionScreen)
        await pilot.press("enter", "enter")  # to the words, and nothing said
        assert "needs a text" in str(screen.query_one("#wrong", Static).render())
        await write(app, pilot, "public.users")
        await until(pilot, lambda: app.screen is not screen)
        answered = await watch.question(asked.id)
        assert answered is not None
        assert (answered.choice, answered.answer) == ("reply", "public.users")
        await until(pilot, lambda: all(one.id != asked.id for one in app.rows.rows))

    driven(store, drive)


def test_options_take_times_and_names_of_tasks(store: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        asked = await choose(app, pilot, LiveSection.QUESTION, "timed out 3 times")
        await pilot.press("a", "down", "down", "enter", *"90", "enter")  # increase_timeout, a bare number is seconds
        await until(pilot, lambda: not isinstance(app.screen, DecisionScreen))
        task = await watch.task(asked.task or "")
        assert task is not None
        assert task.task.timeout == 90_000

    driven(store, drive)


def test_a_task_is_split_by_names(store: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        await choose(app, pilot, LiveSection.QUESTION, "timed out 3 times")
        await pilot.press("a", "enter")
        await write(app, pilot, "first half; second half")
        await until(pilot, lambda: not isinstance(app.screen, DecisionScreen))
        assert len(await watch.tasks(TaskFilter(text="half", open=True))) == 2

    driven(store, drive)


def test_a_failed_task_is_retried_with_what_was_skipped_because_of_it(store: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        await choose(app, pilot, LiveSection.PROBLEM, "read the specs")
        await pilot.press("r", "down", "enter")
        await until(pilot, lambda: not isinstance(app.screen, DecisionScreen))
        again = await watch.tasks(TaskFilter(text="the specs", open=True))
        assert sorted(one.task.name for one in again) == ["read the specs", "use the specs"]
        await until(
            pilot,
            lambda: all("read the specs" not in one.name for one in app.rows.rows if one.part is LiveSection.PROBLEM),
        )

    driven(store, drive)


def test_a_task_is_called_off_only_if_that_is_meant(store: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        doomed = await choose(app, pilot, LiveSection.TASK, "part 3")
        await pilot.press("c", "enter")  # the first choice is to leave it
        await until(pilot, lambda: not isinstance(app.screen, DecisionScreen))
        task = await watch.task(doomed.id)
        assert task is not None
        assert task.task.state == "open"
        await pilot.press("c", "down", "enter")
        await write(app, pilot, "no longer")
        await until(pilot, lambda: not isinstance(app.screen, DecisionScreen))
        task = await watch.task(doomed.id)
        assert task is not None
        assert (task.task.state, task.task.record.reason) == ("cancelled", "no longer")

    driven(store, drive)


def test_a_held_task_in_trouble_is_named_with_what_is_wrong_and_not_with_its_agents_last_words(tmp_path: Path) -> None:
    async def night() -> list[str]:
        await page_scene.play(tmp_path / "night.db", hostile="")
        async with watch_on(f"sqlite:///{tmp_path}/night.db", sweeping=False) as watch:
            seen = await live(engine_of(watch).store)
        return [row.note for row in seen.rows if row.part is LiveSection.PROBLEM]

    problems = asyncio.run(night())
    assert "codex.2 does not answer; it holds “fix the flaky test”" in problems
    assert "seed 7 fails, bisecting" not in problems


def test_a_problem_and_a_question_are_dismissed(store: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        await choose(app, pilot, LiveSection.PROBLEM, "read the specs")
        await pilot.press("d")
        await until(pilot, lambda: all("read the specs" not in one.name for one in app.rows.rows))
        asked = await choose(app, pilot, LiveSection.QUESTION, "Two tables")
        await pilot.press("d")
        await until(pilot, lambda: row(app, LiveSection.QUESTION, "Two tables").state == "dismissed")
        question = await watch.question(asked.id)
        assert question is not None
        assert question.closed_at is None

    driven(store, drive)


def test_inside_an_attempt_nothing_is_decided(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_frame: CliContext, verb: str) -> None:
        from allswell.errors import Refused

        raise Refused("for_humans", f"only a human may {verb}", where="attempt")

    monkeypatch.setattr(CliContext, "for_humans", refuse)

    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        await choose(app, pilot, LiveSection.TASK, "part 3")
        await pilot.press("c", "down", "enter", "enter")
        assert isinstance(app.screen, DecisionScreen)
        await until(pilot, lambda: "only a human" in str(app.screen.query_one("#wrong", Static).render()))

    driven(store, drive)


# --- finding and staying ----------------------------------------------------------------------------------------------


def test_a_text_finds_what_has_ended_too_and_escape_shows_all(store: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        every = len(list(app.rows.rows))
        await pilot.press("slash", *"SP")
        app.query_one("#filter", Input).value = "SPECS"
        await until(
            pilot,
            lambda: (
                {one.name for one in app.rows.rows if one.part is LiveSection.TASK}
                == {"read the specs", "use the specs"}
            ),
        )
        await pilot.press("enter")
        assert app.focused is app.rows
        await pilot.press("slash")
        app.query_one("#filter", Input).value = "none such"
        await until(pilot, lambda: not list(app.rows.rows))
        await until(pilot, lambda: "Nothing matches." in about(app))
        await pilot.press("escape")
        await until(pilot, lambda: len(list(app.rows.rows)) == every)
        assert app.query_one("#filter", Input).display is False

    driven(store, drive)


def test_what_is_chosen_stays_chosen_and_where_it_was(empty: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        await watch.submit_many([{"name": f"part {number}"} for number in range(60)])
        await look(app, pilot)
        await choose(app, pilot, LiveSection.TASK, "part 40")
        place = [at for at, line in enumerate(shown(app)) if "part 40" in line]
        for _ in range(3):
            lease = await watch.claim(agent="ada")
            assert lease is not None
            await lease.ask("and now?")
        await look(app, pilot)
        await pilot.pause()
        chosen = app.rows.chosen
        assert chosen is not None
        assert chosen.name == "part 40"
        assert [at for at, line in enumerate(shown(app)) if "part 40" in line] == place
        await watch.cancel(chosen.id)
        await look(app, pilot)
        chosen = app.rows.chosen
        assert chosen is not None
        assert chosen.name == "part 41", "what has gone leaves its place to the next"

    driven(empty, drive)


def test_thousands_are_counted_and_loaded_as_they_are_wanted(empty: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        await watch.submit_many([{"name": f"part {number}"} for number in range(2_500)])
        await look(app, pilot)
        assert len(list(app.rows.rows)) == 100
        assert "TASKS 2,500" in shown(app)[0]
        await pilot.press("end")
        await until(pilot, lambda: len(list(app.rows.rows)) == 200)
        await pilot.press("slash")
        app.query_one("#filter", Input).value = "part 2499"
        await until(pilot, lambda: [one.name for one in app.rows.rows] == ["part 2499"])

    driven(empty, drive)


def test_a_dead_supervisor_and_a_parked_account_are_told_and_gone_when_mended(empty: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        def head() -> str:
            return str(app.query_one("#head", Static).render())

        word = {"name": "main", "marker": "m", "host": "ship", "pid": 1, "boot_id": "b", "pid_namespace": "n"}
        gone = json.dumps(word | {"pid_start": 1, "started_at": 1, "beaten_at": 1})
        assert await watch.swap("supervisor.main", None, gone)
        await watch.park("anthropic", 9 * 3_600_000)
        await look(app, pilot)
        await until(pilot, lambda: head().startswith("2 things are broken."))
        assert "PROBLEMS 2" in shown(app)[0]
        found = await choose(app, pilot, LiveSection.PROBLEM, "The supervisor main on ship was last heard")
        await until(pilot, lambda: "allswell up" in about(app))
        assert found.command == "allswell up"
        assert row(app, LiveSection.PROBLEM, "“anthropic” asked to wait").command == "allswell unpark anthropic"
        await watch.unpark("anthropic", "grace")
        said = json.loads(gone)
        assert await watch.swap("supervisor.main", gone, json.dumps(said | {"gone": True}))
        await look(app, pilot)
        await until(pilot, lambda: head().startswith("All's well."))

    driven(empty, drive, (160, 40))


# --- logs -------------------------------------------------------------------------------------------------------------


def test_a_log_is_read_as_it_grows_attempt_by_attempt(empty: str, tmp_path: Path) -> None:
    transcripts = tmp_path / ".allswell" / "transcripts"

    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        task = await watch.submit("talks")
        await look(app, pilot)
        transcripts.mkdir(mode=0o700)
        attempts = tmp_path / ".allswell" / "attempts"
        attempts.mkdir(mode=0o700)
        (attempts / f"{task}.1.json").touch(mode=0o600)  # it runs
        log = transcripts / f"{task}.1.stdout"
        log.touch(mode=0o600)
        log.write_text("[red]first[/red] \x1b[31mline\n")
        await choose(app, pilot, LiveSection.TASK, "talks")
        await pilot.press("enter")
        screen = app.screen
        assert isinstance(screen, LogScreen)
        view = screen.query_one(LogView)

        def said() -> str:
            return "\n".join(line.text for line in view.lines)

        await until(pilot, lambda: "[red]first[/red] \\x1b[31mline" in said())
        with log.open("a") as more:
            more.write('{"type":"assistant","session_id":"s","message":{"content":[{"type":"text","text":"on it"}]}}\n')
        await until(pilot, lambda: "on it" in said())
        assert "session_id" not in said(), "lines of a protocol are made readable"
        second = transcripts / f"{task}.2.stdout"
        second.touch(mode=0o600)
        second.write_text("again\n")
        await until(pilot, lambda: "attempt 2" in said())
        await pilot.press("p")
        await until(pilot, lambda: "first" in said() and "again" not in said())
        await pilot.press("escape")
        assert app.screen is not screen

    driven(empty, drive)


def test_where_nothing_is_kept_that_is_said(store: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        await choose(app, pilot, LiveSection.TASK, "part 3")
        await pilot.press("l")
        view = app.screen.query_one(LogView)
        await until(pilot, lambda: "No output is kept here" in "\n".join(line.text for line in view.lines))

    driven(store, drive)


# --- the store --------------------------------------------------------------------------------------------------------


def test_a_store_that_goes_away_is_told_of_and_comes_back_by_itself(store: str, tmp_path: Path) -> None:
    async def main() -> None:
        behind = FaultyStore(SqliteStore(store))
        async with make_watch(behind, sweeping=False) as watch, seated(watch, store) as (app, pilot):
            trouble = app.query_one("#trouble", Static)
            assert not trouble.display
            behind.down = True
            app.look_again()
            await until(pilot, lambda: trouble.display)
            assert "trying again" in str(trouble.render())
            assert list(app.rows.rows), "what was seen is still there"
            behind.down = False
            app.look_again()
            await until(pilot, lambda: not trouble.display)

    asyncio.run(main())


def test_it_works_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as server:
        monkeypatch.setenv("ALLSWELL_KEY", server.keys["operator"])

        async def main() -> None:
            async with watch_on(server.url) as watch, seated(watch, server.url) as (app, pilot):
                task = await watch.submit("far away")
                await look(app, pilot)
                await choose(app, pilot, LiveSection.TASK, "far away")
                await until(pilot, lambda: "is ready" in about(app) or "has been ready" in about(app))
                await pilot.press("c", "down", "enter", "enter")
                await until(pilot, lambda: not isinstance(app.screen, DecisionScreen))
                found = await watch.task(TaskId(task))
                assert found is not None
                assert found.task.state == "cancelled"

        asyncio.run(main())
