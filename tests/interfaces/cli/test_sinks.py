"""Who is told: `sinks`, `deliveries`, `alerts test`, and what `up` tells by itself."""

import asyncio
import base64
import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from allswell import make_watch
from allswell.domain.ids import Millis
from allswell.domain.notify.delivery import Delivery
from allswell.domain.rules.event import Position
from allswell.store.sqlite import SqliteStore
from tests.interfaces.cli.console import Console
from tests.support.fakes import AlertReceiver, NotionServer, StandIn, Status, WebhookReceiver

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver(SECRET) as receiver:
        yield receiver


def set_up(cli: Console, receiver: WebhookReceiver, more: str = "") -> None:
    cli.patch.setenv("HOOK_SECRET", SECRET)
    cli.patch.setenv("ALLSWELL_PACE_FOLLOW_POLL", "50ms")
    (cli.folder / "allswell.toml").write_text(
        f'[sinks.hook]\nkind = "webhook"\nurl = "{receiver.url}/x"\nsecret_env = "HOOK_SECRET"\n'
        f'allow_private = true\nbegins = "start"\nhears = ["tasks"]\n{more}'
    )


def stop_after(receiver: StandIn, count: int, number: int) -> None:
    """Stop this process normally when so much has arrived."""
    receiver.wait_for(count, 30)
    os.kill(os.getpid(), number)


def stop_when_told(database: Path) -> None:
    """Stop this process normally when the journal knows that somebody was told of a question."""
    for _ in range(1_500):
        with contextlib.closing(sqlite3.connect(database)) as store:
            if store.execute("SELECT count(*) FROM journal WHERE events LIKE '%question_told%'").fetchone()[0]:
                os.kill(os.getpid(), signal.SIGINT)
                return
        time.sleep(0.02)


def leave(cli: Console, **more: object) -> str:
    """Something that could not be delivered."""
    one = Delivery("hook", "msg_hook_1", "", (0, 1, 0), Millis(1), "{}", **more)  # type: ignore[arg-type]

    async def main() -> None:
        async with make_watch(SqliteStore(cli.database)) as watch:
            await watch.outbox.enlist("sink.hook", Position(), Position(0, 1), [one])

    asyncio.run(main())
    return one.id


@pytest.mark.row("M9")
def test_up_tells_a_webhook_beside_its_fleet(cli: Console, receiver: WebhookReceiver) -> None:
    set_up(cli, receiver, '[agents.sh]\ncommand = ["true", "{prompt}"]\n')
    cli.submit("paint")
    arrived = threading.Thread(target=stop_after, args=(receiver, 3, signal.SIGTERM))
    arrived.start()
    said = cli("up")
    arrived.join()
    assert said.code == 0, said
    assert [taken["type"] for taken in receiver.taken.values()] == ["task_submitted", "task_claimed", "task_completed"]
    assert receiver.repeated == []


def test_up_goes_on_without_a_sink_that_cannot_be_told(cli: Console, receiver: WebhookReceiver) -> None:
    set_up(cli, receiver, '[agents.sh]\ncommand = ["true", "{prompt}"]\n')
    cli.patch.delenv("HOOK_SECRET")
    cli.submit("paint")
    said = cli.ok("up", "--drain")
    assert "the sink hook gets no messages: sinks.hook.secret_env: the variable HOOK_SECRET is not set" in said.out
    assert [task["state"] for task in cli.ok("tasks", "--all", "--json").json["tasks"]] == ["done"]


def test_sinks_run_tells_without_a_fleet(cli: Console, receiver: WebhookReceiver) -> None:
    set_up(cli, receiver)
    cli.submit("paint")
    arrived = threading.Thread(target=stop_after, args=(receiver, 1, signal.SIGINT))
    arrived.start()
    said = cli("sinks", "run", "--json")
    arrived.join()
    assert said.code == 0
    assert said.json["said"] == "sending to hook; Ctrl-C stops"
    assert len(receiver.taken) == 1


@pytest.mark.row("M9")
def test_sinks_run_posts_requests_to_addresses_without_any_sink(cli: Console, receiver: WebhookReceiver) -> None:
    (cli.folder / "allswell.toml").write_text('webhook_hosts = "private"\n[webhook_secrets]\n"*" = "HOOK_SECRET"\n')
    cli.patch.delenv("HOOK_SECRET", raising=False)
    (found,) = cli.ok("check", "--json").json["findings"]
    assert (found["rule"], found["severity"]) == ("secret_not_set", "warning")
    assert "signed with HOOK_SECRET, and that variable is not set here" in found["says"]
    cli.patch.setenv("HOOK_SECRET", SECRET)
    assert cli.ok("check", "--json").json["findings"] == []
    cli.submit("deploy")
    cli.claim("sandman")
    cli.ok("request", receiver.url, "deploy it", "--kind", "webhook", "--no-wait")
    arrived = threading.Thread(target=stop_after, args=(receiver, 1, signal.SIGINT))
    arrived.start()
    said = cli("sinks", "run", "--json")
    arrived.join()
    assert (said.code, said.json["said"]) == (0, "posting webhook requests; Ctrl-C stops")
    assert len(receiver.taken) == 1


def test_deliveries_are_listed_tried_again_and_dropped(cli: Console, receiver: WebhookReceiver) -> None:
    set_up(cli, receiver)
    cli.submit("paint")
    id_ = leave(cli, tries=4, given_up=True, reason="answered 410")
    shown = cli.ok("deliveries").out
    assert "given up" in shown
    assert "answered 410" in shown
    assert "allswell deliveries retry" in shown
    assert cli.ok("sinks", "--json").json == {
        "sinks": [{"sink": "hook", "kind": "webhook", "set_up": True, "waiting": 0, "given_up": 1, "reason": ""}]
    }
    assert cli.ok("deliveries", "retry", "msg_").out == "Retried: 1 delivery.\n"
    (one,) = cli.ok("deliveries", "--json").json["deliveries"]
    assert (one["delivery_id"], one["state"], one["tries"]) == (id_, "waiting", 0)
    assert cli("deliveries", "drop").code == 2
    assert "no message has this id" in cli("deliveries", "drop", "msg_x").err
    assert cli.ok("deliveries", "drop", id_).out == "Dropped: 1 delivery.\n"
    assert cli.ok("deliveries").out == "Nothing waits to be delivered.\n"
    assert cli.ok("deliveries", "retry").out == "Nothing is to be retried.\n"


def test_alerts_test_tries_every_route_and_says_which_arrived(cli: Console) -> None:
    with AlertReceiver() as good, AlertReceiver() as bad:
        bad.always(Status(500))
        (cli.folder / "allswell.toml").write_text(
            f'[sinks.oncall]\nkind = "alerts"\nroutes = {{ info = "{good.route()}", critical = "env:PAGER" }}\n'
        )
        cli.patch.setenv("PAGER", bad.route("hunter2"))
        said = cli("alerts", "test", "--json")
    assert said.code == 1
    assert [(one["severity"], one["delivered"]) for one in said.json["routes"]] == [
        ("info", True),
        ("warning", True),
        ("critical", False),
    ]
    assert "hunter2" not in said.out + said.err
    assert len(good.taken) == 2


def test_sinks_check_says_what_is_wrong_with_each(cli: Console, receiver: WebhookReceiver) -> None:
    set_up(cli, receiver, '[sinks.typo]\nkind = "alerts"\nroutes = { info = "jsn://hunter2" }\n')
    said = cli("sinks", "check", "--json")
    assert said.code == 1
    hook, typo = said.json["sinks"]
    assert (hook["fits"], hook["says"]) == (True, "127.0.0.1 is at 127.0.0.1; what is sent has 1 signature(s)")
    assert not typo["fits"]
    assert "did you mean json://?" in typo["says"]
    assert "hunter2" not in said.out


@pytest.mark.parametrize(
    "words, says",
    [
        (("sinks", "check"), "no sink is set up: add [sinks.NAME] to allswell.toml"),
        (("alerts", "test"), "no sink is set up"),
    ],
)
def test_without_sinks_it_is_said_what_to_do(cli: Console, words: tuple[str, ...], says: str) -> None:
    said = cli(*words)
    assert (said.code, says in said.err) == (2, True), said


def test_a_name_that_is_no_sink_and_a_sink_that_is_no_alert(cli: Console, receiver: WebhookReceiver) -> None:
    set_up(cli, receiver)
    assert "no such sink: 'hok'; did you mean 'hook'?" in cli("sinks", "check", "hok").err
    assert "the sink hook is not of kind alerts" in cli("alerts", "test", "hook").err


def test_a_mistake_in_the_sinks_stops_only_who_needs_them(cli: Console) -> None:
    (cli.folder / "allswell.toml").write_text('[sinks.hook]\nkind = "email"\n')
    cli.submit("paint")
    said = cli("sinks")
    assert said.code == 2
    assert "allswell.toml:2: sinks.hook.kind: 'email' is not a kind of sink" in said.err
    assert "sinks.hook.kind" in cli("check").out


NOTION = '[sinks.log]\nkind = "notion"\ntoken_env = "TOKEN"\nurl = "{url}"\nbegins = "start"\n'


@pytest.mark.row("M4")
def test_a_notion_database_is_made_checked_and_filled(cli: Console) -> None:
    with NotionServer(rate=50) as notion:
        config = cli.folder / "allswell.toml"
        config.write_text(NOTION.format(url=notion.url) + f'page = "{notion.page}"\n')
        cli.patch.setenv("TOKEN", notion.token)
        assert "`allswell sinks setup log` makes one" in cli("sinks", "check", "--json").json["sinks"][0]["says"]
        made = cli.ok("sinks", "setup", "log", "--json").json
        (database,) = notion.databases
        assert (made["database_id"], made["made"]) == (database, True)
        config.write_text(NOTION.format(url=notion.url) + f'database = "{database}"\n')
        again = cli.ok("sinks", "setup", "log", "--json").json
        assert (again["database_id"], again["made"]) == (database, False)
        cli.submit("deploy")
        cli.claim("ann")
        cli.ok("request", "oracle", "server access", "--no-wait")
        stop = threading.Thread(target=stop_after, args=(notion, len(notion.requests) + 3, signal.SIGINT))
        stop.start()
        assert cli("sinks", "run", "log").code == 0
        stop.join()
    assert notion.column("Event") == ["Request to oracle: server access"]
    assert notion.column("Source Agent") == ["ann"]


def test_a_database_that_does_not_fit_is_told_what_does_not(cli: Console) -> None:
    with NotionServer(rate=50) as notion:
        database = notion.add_database({"Name": "title", "Status": "status"})
        config = cli.folder / "allswell.toml"
        config.write_text(NOTION.format(url=notion.url) + f'database = "{database}"\n')
        cli.patch.setenv("TOKEN", notion.token)
        said = cli("sinks", "setup", "log")
        assert said.code == 2
        assert "there is no property 'Event' (title): rename 'Name'" in said.err
        assert "'Status' is of type status, and should be select" in said.err
        cli.patch.setenv("TOKEN", "hunter2")
        said = cli("sinks", "check", "log")
        assert said.code == 1
        assert "Notion answered 401" in said.out
        assert "hunter2" not in said.out + said.err


def test_only_what_can_be_set_up_is(cli: Console, receiver: WebhookReceiver) -> None:
    set_up(cli, receiver)
    said = cli("sinks", "setup", "hook")
    assert (said.code, "the sink hook needs no setup" in said.err) == (2, True)


@pytest.mark.row("M3")
def test_comms_has_the_nine_fields_of_every_message(cli: Console) -> None:
    cli.submit("deploy")
    cli.claim("ann")
    assert cli.ok("comms").out == "No agent has asked another one.\n"
    cli.ok("request", "oracle", "server access", "--no-wait")
    cli("request", "oracle", "at once", "--timeout", "1ms")
    rows = [msgspec.json.decode(line) for line in cli.ok("comms", "--json").out.splitlines()]
    assert [(row["event"], row["status"], row["blocked_task"]) for row in rows] == [
        ("Request to oracle: server access", "Sent", ""),
        ("Request to oracle: at once", "Sent", ""),
        ("Timeout waiting for oracle", "Timeout", "deploy"),
    ]
    head, first, *_ = cli.ok("comms", "--csv").out.splitlines()
    assert head == (
        "Event,Source Agent,Target Agent,Status,Timeout (min),Blocked Task,Resolution,Timestamp,Retry Count"
    )
    assert first.startswith("Request to oracle: server access,ann,oracle,Sent,,,,20")
    assert "Timeout waiting for oracle" in cli.ok("comms").out
    assert cli("comms", "--csv", "--json").code == 2


@pytest.mark.row("M3")
def test_comms_shows_task_retry_and_id_and_can_be_narrowed_down(cli: Console) -> None:
    cli.submit("deploy")
    cli("inbox", "--agent", "oracle")
    cli.claim("ann")
    request = cli.ok("request", "oracle", "server access", "--no-wait").out.strip()
    vain = ("request", "oracle", "at once", "--kind", "handoff", "--timeout", "1ms", "--retries", "1")
    assert cli(*vain).code == 124

    def shown(*words: str) -> list[str]:
        return [json["status"] for json in map(msgspec.json.decode, cli.ok("comms", "--json", *words).out.splitlines())]

    head, first, *_ = cli.ok("comms").out.splitlines()
    assert head.split() == ["WHEN", "STATUS", "FROM", "TO", "EVENT", "TASK", "RETRY", "ID"]
    assert first.split()[-3:] == ["deploy", "0", request]
    blocked = [line.split() for line in cli.ok("comms", "--status", "blocked").out.splitlines()[1:]]
    assert [(line[-3], line[-2]) for line in blocked] == [("deploy", "1")]
    assert shown("--status", "Timeout") == ["Timeout"] * 2
    assert shown("--agent", "ORACLE") == shown("--agent", "ann") == shown()
    assert shown("--agent", "eve") == []
    assert shown("--limit", "2") == shown()[-2:]
    assert shown("--status", "sent", "--limit", "1", "--agent", "oracle") == ["Sent"]
    assert shown("--since", "1h") == shown()
    assert shown("--since", "2999-01-01T00:00") == []
    said = cli("comms", "--status", "sant")
    assert (said.code, "did you mean 'Sent'?" in said.err) == (2, True)
    assert cli.ok("comms", "--agent", "eve").out == "No message between agents matches.\n"


def test_a_question_that_nobody_was_told_of_is_shown_as_such(cli: Console) -> None:
    with AlertReceiver() as receiver:
        (cli.folder / "allswell.toml").write_text(
            f'[sinks.oncall]\nkind = "alerts"\nbegins = "start"\nroutes = {{ info = "{receiver.route()}" }}\n'
        )
        cli.submit("deploy")
        cli.claim("ann")
        cli.ok("ask", "Which database?", "--hold")
        question = cli.ok("questions", "--json").json["untold"][0]
        assert "No alert about it was delivered: allswell deliveries" in cli.ok("questions").out
        stop = threading.Thread(target=stop_when_told, args=(cli.database,))
        stop.start()
        assert cli("sinks", "run").code == 0
        stop.join()
        assert cli.ok("questions", "--json").json["untold"] == []
        assert "No alert about it" not in cli.ok("questions").out
        ((_, alert),) = receiver.taken
        assert f"allswell answer {question} reply    (Answer in words: it goes on, with your answer)" in alert.message


def test_the_doctor_sees_what_cannot_be_delivered(cli: Console, receiver: WebhookReceiver) -> None:
    set_up(cli, receiver)
    cli.submit("paint")
    leave(cli, tries=2, reason="answered 503")
    said = cli("doctor", "--json")
    (found,) = [one for one in said.json["findings"] if one["check"] == "sinks"]
    assert found["says"].startswith("hook cannot deliver: answered 503")


def test_a_sink_that_was_removed_is_listed_and_can_be_forgotten(cli: Console, receiver: WebhookReceiver) -> None:
    set_up(cli, receiver)
    cli.submit("paint")
    leave(cli, tries=2, reason="answered 503")

    async def told_long_ago() -> None:
        async with make_watch(SqliteStore(cli.database)) as watch:
            await watch.swap("sink.hook", None, "a duty")

    asyncio.run(told_long_ago())
    assert "the sink hook is set up here: remove [sinks.hook]" in cli("sinks", "forget", "hook").err
    cli.submit("paint it blue")
    (cli.folder / "allswell.toml").unlink()
    cli.patch.setenv("ALLSWELL_DOCTOR_BEHIND", "1ms")
    (found,) = [one for one in cli("doctor", "--json").json["findings"] if one["check"] == "followers"]
    assert found["says"] == "the sink hook gets no more messages: it is not set up here"
    assert found["next"] == "allswell sinks forget hook"
    shown = cli.ok("sinks").out
    assert "removed" in shown
    assert "allswell sinks forget hook" in shown
    assert "did you mean 'hook'?" in cli("sinks", "forget", "hok").err
    assert cli.ok("sinks", "forget", "hook").out == "Forgotten: hook, with 1 delivery that waited for it.\n"
    assert cli.ok("sinks", "--json").json == {"sinks": []}
    (found,) = [one for one in cli("doctor", "--json").json["findings"] if one["check"] == "followers"]
    assert found["verdict"] == "ok"
