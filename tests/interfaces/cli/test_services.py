"""A service that fails, as people see it: asked about first, explained by `why`, answered, noticed by `doctor` (F8)."""

import asyncio

import pytest

import allswell
from allswell.domain.rules.command import Admit, Park, Report
from allswell.domain.service.breaker import BreakerPolicy, CallOutcome, Permit
from allswell.domain.service.calls import ServiceReply
from allswell.domain.service.guard import GuardPolicy
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.upkeep import HOUR, MINUTE, watch_at

POLICY = BreakerPolicy(pause=2 * HOUR, probe_lease=HOUR)


def failing(cli: Console, times: int, *, ago: int, policy: BreakerPolicy = POLICY) -> None:
    """A service that failed so often in a row, the first time that long ago; each probe came as soon as it could."""

    async def night() -> None:
        for _ in range(times):
            async with watch_at(cli.folder, ago) as watch:
                rows = await watch.services()
                wait = (rows[0].state.open_until or 0) - watch._engine.clock.wall() if rows else 0
            async with watch_at(cli.folder, ago - max(wait, 0)) as watch:
                told = await watch._engine.do(Admit(watch._ids.command(), "anthropic", policy))
                assert isinstance(told, ServiceReply)
                assert isinstance(told.given, Permit)
                await watch._engine.do(Report(watch._ids.command(), told.given, CallOutcome.FAILED, policy))

    asyncio.run(night())


@pytest.mark.row("F8")
def test_a_question_about_a_service_comes_first_and_is_answered_by_its_name(cli: Console) -> None:
    failing(cli, 5, ago=5 * HOUR)
    task = cli.submit("summarise", "--service", "anthropic")
    first = cli.ok("questions").out
    for part in ("q_@anthropic.1", "service anthropic", "has failed 5 times in a row", "probe", "wait"):
        assert part in first
    (question,) = cli.ok("questions", "--json").json["questions"]
    assert (question["task_id"], question["service"], question["kind"]) == (None, "anthropic", "service_failing")
    status = cli().out
    assert "You were asked" in status
    assert "allswell why q_@anthropic.1" in status
    assert cli("claim", "--agent", "ada").code == 5
    why = " ".join(cli.ok("why", task).out.split())
    assert "it needs “anthropic”, which has failed 5 times in a row and has been shut for" in why
    assert "it is not called, and the next try is in" in why
    assert "q_@anthropic.1" in why
    about = " ".join(cli.ok("why", "q_@anthropic.1").out.split())
    assert "It is about the service “anthropic”" in about
    assert "allswell answer q_@anthropic.1 probe" in about
    assert "service anthropic" in cli.ok("show", "q_@anthropic.1").out
    wrong = cli("answer", "anthropic", "skip")
    assert (wrong.code, "choose one of: probe, wait" in wrong.err) == (2, True)
    said = cli.ok("answer", "anthropic", "probe", "they fixed it").out
    assert "Answered: probe. Service anthropic has failed 5 times in a row" in said
    assert "the next call tries it" in said
    assert cli.ok("questions").out == "No question is open.\n"
    assert cli.ok("claim", "--agent", "ada", "--wait", "6s", "--json").json["task"]["task_id"] == task
    events = cli.ok("events").out
    assert "anthropic failed 3 times in a row: it is not called for 2h" in events
    for told in ("is tried with one call", "a human is asked (q_@anthropic.1)", "asks you: ", "was answered by"):
        assert told in events


@pytest.mark.row("F8")
def test_a_task_that_waits_for_a_human_to_release_its_service_says_so(cli: Console) -> None:
    failing(cli, 5, ago=5 * HOUR, policy=BreakerPolicy(pause=HOUR, probe_lease=HOUR, then="wait"))
    task = cli.submit("summarise", "--service", "anthropic")
    why = " ".join(cli.ok("why", task).out.split())
    assert "it is not called until a human has answered" in why
    assert "allswell why q_@anthropic.1" in why


@pytest.mark.row("F5")
def test_a_parked_service_is_told_with_its_end(cli: Console) -> None:
    task = cli.submit("summarise", "--service", "anthropic")

    async def night() -> None:
        async with watch_at(cli.folder) as watch:
            await watch._engine.do(Park(watch._ids.command(), "anthropic", 3 * HOUR))

    asyncio.run(night())
    why = " ".join(cli.ok("why", task).out.split())
    assert "which asked to wait. It is paused for another 2h 59m." in why


@pytest.mark.row("F8")
def test_the_doctor_speaks_of_a_service_that_has_been_shut_for_long(cli: Console) -> None:
    def services() -> dict[str, object]:
        found = {one["check"]: one for one in cli("doctor", "--json").json["findings"]}
        return dict(found["services"])

    cli.submit("other")
    assert services()["says"] == "every service can be called"
    cli.database.unlink()  # a store's clock never goes back: the past is told to a new one
    failing(cli, 3, ago=5 * MINUTE)
    assert services()["verdict"] == "ok"
    assert services()["level"] == "waiting"
    assert str(services()["says"]).startswith("“anthropic” has failed 3 times in a row and has been shut for 5m")
    cli.database.unlink()
    failing(cli, 3, ago=HOUR)
    warned = services()
    assert warned["verdict"] == "bad"
    assert str(warned["says"]).startswith("“anthropic” has failed 3 times in a row and has been shut for 1h")


@pytest.mark.row("F7")
def test_a_sync_program_asks_and_people_answer_at_the_command_line(cli: Console) -> None:
    with allswell.open(f"sqlite:///{cli.folder}/.allswell/allswell.db") as watch:
        one = allswell.guard("anthropic", GuardPolicy(breaker=None), watch=watch)
        for _ in range(3):
            with pytest.raises(PermissionError):
                one.call_sync(_refused)
    first = cli.ok("questions").out
    for part in ("q_@anthropic.1", "service anthropic", "refuses who we say we are", "mended", "later"):
        assert part in first
    about = " ".join(cli.ok("why", "q_@anthropic.1").out.split())
    assert "allswell answer q_@anthropic.1 mended" in about
    assert "Answered: mended." in cli.ok("answer", "anthropic", "mended").out
    assert cli.ok("questions").out == "No question is open.\n"
    events = cli.ok("events").out
    assert events.count("anthropic needs help") == 1


def _refused() -> None:
    raise PermissionError("invalid x-api-key")
