"""What a way to answer does stands beside its label at every door; one that ends work asks, and can be taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from allswell.domain.ids import Millis, QuestionId, TaskId
from allswell.domain.notify.alert import alert_for
from allswell.domain.question import (
    AGENTS_ACTS,
    DESTRUCTIVE,
    ESCALATION_OPTIONS,
    REPLY,
    SKIP,
    AnswerAction,
    Option,
    Question,
    check_agents_option,
    does,
    in_order,
)
from allswell.domain.rules.event import Event
from allswell.engine.status.live import LiveSection
from allswell.engine.status.task import stand_question
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.interfaces.tui.actions import DecisionScreen
from allswell.interfaces.tui.app import WatchApp
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.test_watching import choose, driven, empty, look, until
from tests.interfaces.cli.upkeep import at_terminal

__all__ = ["empty"]


def asked(cli: Console) -> tuple[str, str]:
    """A task whose agent asks in words, and its question."""
    task = cli.submit("unsure")
    cli.claim()
    return task, cli.ok("ask", "Left or right?").out.strip()


def test_an_agent_offers_only_ways_to_go_on() -> None:
    for act in AnswerAction:
        option = Option("way", "No, send it back", act)
        if act in AGENTS_ACTS:
            check_agents_option(option)
        else:
            with pytest.raises(Refused, match="an agent cannot offer that"):
                check_agents_option(option)
    assert {
        AnswerAction.SKIP,
        AnswerAction.SPLIT,
        AnswerAction.ACCEPT,
        AnswerAction.INCREASE_COST,
        AnswerAction.INCREASE_TIMEOUT,
    }.isdisjoint(AGENTS_ACTS)


def test_the_command_line_offers_no_act_of_fate_and_shows_what_each_way_does(cli: Console) -> None:
    cli.submit("unsure")
    cli.claim()
    refused = cli("ask", "Is it good?", "-o", "increase_cost=No, send it back")
    assert (refused.code, "an agent cannot offer that" in refused.err) == (2, True)
    question = cli.ok("ask", "Is it good?", "-o", "no=No, send it back").out.strip()
    for command in (("questions",), ("show", question), ("why", question)):
        shown = cli(*command).out
        assert "No, send it back" in shown
        assert does(AnswerAction.RETRY) in " ".join(shown.split()), shown
    (option,) = cli.ok("questions", "--json").json["questions"][0]["options"]
    assert (option["does"], option["destructive"]) == (does(AnswerAction.RETRY), False)


def test_alerts_and_explanations_show_it_too_and_no_ending_way_stands_first(cli: Console) -> None:
    _, question = asked(cli)
    (shown,) = cli.ok("questions", "--json").json["questions"]
    assert [(one["key"], one["destructive"]) for one in shown["options"]] == [("reply", False), ("skip", True)]
    ways = [SKIP, *ESCALATION_OPTIONS[:2], REPLY]
    alert = alert_for(Event("question_asked", TaskId("t_a"), data={"question": question, "text": "?"}), "a", ways)
    lines = [line for line in alert.text.splitlines() if "allswell answer" in line]
    assert all(does(way.act) in line for way, line in zip(in_order(ways), lines, strict=True))
    assert in_order(ways)[-1] is SKIP
    assert {SKIP.act, AnswerAction.CANCEL_MESSAGE} == DESTRUCTIVE


def test_the_command_line_asks_before_it_ends_work_and_says_how_to_take_it_back(cli: Console, tmp_path: Path) -> None:
    task, question = asked(cli)
    cli.patch.delenv("ALLSWELL_TASK")
    refused = cli("answer", question, "skip")
    assert (refused.code, "--yes" in refused.err) == (2, True), refused
    for typed in ("n\n", "\n"):
        said = at_terminal("answer", question, "skip", cwd=tmp_path, columns=160, typed=typed)
        assert (said.code, "Really? [y/N]" in said.out) == (2, True), said
        assert cli.ok("show", task, "--json").json["task"]["state"] == "waiting"
    said = at_terminal("answer", question, "skip", cwd=tmp_path, columns=160, typed="y\n")
    assert (said.code, f"{does(AnswerAction.SKIP)}). Really? [y/N]" in said.out) == (0, True), said
    assert cli.ok("show", task, "--json").json["task"]["state"] == "skipped"
    assert f"To take it back: `allswell retry {task} --with-dependents`" in said.out
    (made,) = cli.ok("retry", task, "--with-dependents", "--json").json["retried"]
    assert cli.ok("show", made["new_task_id"], "--json").json["task"]["state"] == "ready"


def test_what_ends_work_can_be_taken_back_or_says_that_it_cannot() -> None:
    """A skipped task is handed over again; of a message that was dropped, nothing is left."""
    for act in DESTRUCTIVE - {AnswerAction.SKIP}:
        assert does(act).endswith("for good, and cannot be taken back"), act


def test_scripts_say_yes(cli: Console) -> None:
    task, question = asked(cli)
    assert cli.ok("answer", question, "skip", "--yes", "--json").json["choice"] == "skip"
    assert cli.ok("show", task, "--json").json["task"]["state"] == "skipped"
    assert cli("answer", question, "skip").code == 2, "it is closed"


def test_the_live_view_asks_for_enter_once_more(empty: str) -> None:
    async def drive(app: WatchApp, pilot: Pilot[None], watch: Watch) -> None:
        task = await watch.submit("unsure")
        lease = await watch.claim(agent="ada")
        assert lease is not None
        await lease.ask("Left or right?")
        await look(app, pilot)
        await choose(app, pilot, LiveSection.QUESTION, "Left")
        await pilot.press("a")
        screen = app.screen
        assert isinstance(screen, DecisionScreen)

        def told() -> str:
            return str(screen.query_one("#wrong", Static).render())

        await pilot.press("down", "enter", "enter")  # to the words, and none
        await until(pilot, lambda: "Really? It ends without being done" in told())
        await pilot.press("up", "down", "enter")  # another way was looked at: it is asked about anew
        row = await watch.task(task)
        assert row is not None
        assert row.task.state == "open"
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is not screen)
        row = await watch.task(task)
        assert row is not None
        assert row.task.state == "skipped"

    driven(empty, drive)


def test_why_a_question_waits_is_told_with_what_each_way_does() -> None:
    ways = (SKIP, Option("go", "Delete nothing", AnswerAction.RETRY))
    question = Question(QuestionId("q_a.1"), TaskId("t_a"), None, "agent", "?", ways, Millis(0), "ada")
    todo = stand_question(question, 1).todo
    assert [one.what for one in todo] == [
        f"Delete nothing ({does(AnswerAction.RETRY)})",
        f"{SKIP.label} ({does(AnswerAction.SKIP)})",
    ]
