"""What an agent's and a submitter's key cannot do, tried as attacks on a real server (docs/threat-model.md)."""

# ruff: noqa: ANN401 - JSON is whatever it is

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.app import make_watch, store_for
from allswell.domain.access.key import Key, Right
from allswell.domain.agents.cost import Expense
from allswell.domain.agents.quota import Quota
from allswell.domain.ids import AgentId, CommandId, Millis, TaskId, Token
from allswell.domain.question import AnswerAction, Option
from allswell.domain.rules.command import (
    Ask,
    AskForHelp,
    CheckInAgain,
    Command,
    Complete,
    EndIdle,
    Fail,
    NewTask,
    RecordReceipt,
    Release,
    Submit,
)
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.model import TaskFilter, TaskRow
from allswell.domain.task.submit import WEBHOOKS
from allswell.domain.values import JSON_DEEPEST, check_json
from allswell.engine.access.gate import VisibleRecords
from allswell.engine.access.keys import KeyQuota, Keyring
from allswell.engine.budget import Budgets
from allswell.engine.ids import task_for_key
from allswell.errors import Refused, Unavailable
from allswell.testing.sim.process import engine_of
from allswell.timing.clock import PausableClock, SystemClock
from tests.engine.stage import Stage, play
from tests.interfaces.http.served import Served, serving
from tests.interfaces.mcp.scene import key_of, tables

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("keys")
    (folder / "allswell.toml").write_text('[roles.checked]\nverify = ["true"]\n')
    with serving(folder) as started:
        started.keys |= asyncio.run(more_keys(started.store))
        yield started


async def more_keys(store: str) -> dict[str, str]:
    async with make_watch(store_for(store)) as watch:
        keys = Keyring(watch)
        return {name: (await keys.create(name, rights=["agent"], roles=["build"]))[1] for name in ("eve", "carol")}


def said(server: Served, key: str, command: str, **about: Any) -> Any:
    """What a command over `/commands` came to: its answer, or its error."""
    sent = {"command": command, "about": {"id": f"c{next(NUMBERS)}", **about}}
    answer = server.call("POST", "/commands", {"commands": [sent]}, key=key)
    assert answer.status < 500, answer.body
    if answer.status != 200:
        return answer.json
    (one,) = answer.json["answers"]
    return one["error"] if "error" in one else one["answer"]


def held(server: Served, key: str, **task: Any) -> tuple[str, int]:
    given = {"tasks": [{"name": "work", "role": "build", **task}]}
    (id_,) = server.ok("POST", "/tasks", given)["task_ids"]
    (lease,) = server.ok("POST", "/claims", {"task_id": id_, "agent_id": key}, key=key)["claims"]
    return id_, lease["token"]


def services(server: Served) -> dict[str, Any]:
    found: dict[str, Any] = server.ok("POST", "/views/view_services", {})
    return found


def test_an_agents_key_parks_only_what_its_task_uses_and_not_for_long(server: Served) -> None:
    """Not a budget, which would stop the fleet; not another's service; and its own no longer than it would wait."""
    for service in ("budget:day", "budget:role:build"):
        assert said(server, "eve", "Park", service=service, delay=2**31)["code"] in ("not_allowed", "bad_service")
        assert said(server, "admin", "Park", service=service, delay=1)["code"] == "bad_service"
    assert said(server, "eve", "Park", service="others", delay=60_000)["code"] == "not_allowed"
    permit = {"type": "permit", "service": "others", "generation": 0}
    policy = {"open_after": 1, "escalate_after": 1, "pause": 366 * 86_400_000}
    for _ in range(5):
        told = said(server, "eve", "Report", permit=permit, outcome="failed", policy=policy)
        assert told["code"] == "not_allowed"
    assert said(server, "eve", "Admit", service="others", policy=policy)["code"] == "not_allowed"
    asked = said(server, "eve", "AskForHelp", service="others", cause="auth", reason="send money", message="")
    assert asked["code"] == "not_allowed"
    assert said(server, "eve", "Park", service="own", delay=2**62)["code"] in ("not_allowed", "bad_duration")
    held(server, "eve", services=["own"])
    told = said(server, "eve", "Park", service="own", delay=86_400_000)
    assert 0 < told["wait"] <= 300_000, told
    assert set(services(server)) == {"own"}


def test_an_agents_key_opens_no_breaker_for_a_year(server: Served) -> None:
    """The figures of a breaker are the watch's."""
    held(server, "eve", services=["shared"])
    policy = {"open_after": 1, "escalate_after": 1, "pause": 366 * 86_400_000, "then": "wait"}
    permit = {"type": "permit", "service": "shared", "generation": 0}
    told = said(server, "eve", "Report", permit=permit, outcome="failed", policy=policy)
    assert told["state"].get("open_until") is None, told
    assert not told["state"].get("held"), told


def test_a_failure_parks_no_service_for_years(server: Served) -> None:
    task, token = held(server, "eve", services=["slow"])
    failure = {"error": "rate_limit", "message": "wait", "retry_after": 300 * 86_400_000, "services": ["slow"]}
    said(server, "eve", "Fail", task=task, token=token, agent="eve", failure=failure)
    now = server.ok("POST", "/views/view_agenda", {})["now"]
    assert 0 < services(server)["slow"]["state"]["parked_until"] - now <= 310_000


def test_an_expense_is_neither_negative_nor_beyond_counting(server: Served) -> None:
    task, token = held(server, "eve")
    for cost in (-1, -1_000_000_000, -(2**63), 2**63 - 1, 2**70):
        refused = said(server, "eve", "Spend", task=task, token=token, agent="eve", expense={"cost": cost})
        assert refused["code"] in ("bad_cost", "bad_command"), refused
    refused = said(server, "eve", "Spend", task=task, token=token, agent="eve", expense={"given": -5})
    assert refused["code"] == "bad_cost"


def test_rows_from_before_there_were_bounds_neither_take_away_nor_overflow(server: Served) -> None:
    """Two rows of the smallest number that there is made sums fail, and budgets with them."""
    task, token = held(server, "eve")
    said(server, "eve", "Spend", task=task, token=token, agent="eve", expense={"cost": 2_000_000})
    connection = sqlite3.connect(server.store.removeprefix("sqlite:///"), timeout=30)
    with connection:
        old = "INSERT INTO expense (task, token, agent, role, run, told_at, cost, given, written) "
        values = "VALUES (?, 1, 'eve', 'build', NULL, 1, ?, ?, ?)"
        for number in range(2):
            connection.execute(old + values, (f"t_old{number}", -(2**63), 2**63 - 1, 2**63 - 1))
    connection.close()
    for where in ("/costs", "/agents"):
        server.ok("GET", where)
    assert server.call("GET", "/metrics").status == 200
    assert server.ok("POST", "/views/view_spent", {"by": "all"})[""]["cost"] >= 2_000_000


def test_a_submission_cannot_escape_its_roles_verification(server: Served) -> None:
    new = {"id": "t_flow", "name": "sly", "role": "checked", "flow": True}
    assert said(server, "submitter", "Submit", tasks=[new])["code"] == "bad_flow"


@pytest.mark.parametrize("id_", ["t_a/{}", "t_../{}", "t_{}/..", "../{}", "t_{}\n"])
def test_no_id_is_a_path(server: Served, id_: str) -> None:
    """A submitter's task whose id leads to another's files would replace its note, transcript and receipt."""
    refused = said(server, "submitter", "Submit", tasks=[{"id": id_.format("t_victim"), "name": "x"}])
    assert refused["code"] == "bad_id"
    assert said(server, "submitter", "OpenRun", run="r_a/../b", name="x")["code"] == "bad_id"
    assert not list(Path(server.folder).rglob("*victim*"))


def test_a_part_of_ones_name_is_nobody_else(server: Served) -> None:
    """`eve/carol` is a part of Eve; what is asked of Carol is Carol's to take and to answer."""
    task, token = held(server, "ada")
    word = f"/tasks/{task}/leases/{token}/request"
    asked = server.ok("POST", word, {"name": "for Carol", "kind": "handoff", "to": "carol"}, key="ada")["request_id"]
    assert said(server, "eve", "Claim", agent="eve/carol", task=asked) == []
    refused = said(server, "eve", "Respond", request=asked, agent="eve/carol", result='"mine"')
    assert refused["code"] == "not_addressed"
    (lease,) = server.ok("POST", "/claims", {"task_id": asked, "agent_id": "carol"}, key="carol")["claims"]
    assert lease["agent_id"] == "carol"


REQUEST: dict[str, Any] = {"name": "x", "role": "build"}
OF_A_REQUEST: dict[str, Any] = {
    "services": ["everybodys"],
    "run": "r_others",
    "critical": True,
    "not_before": 1,
    "needs": ["t_x"],
    "carried": {"notes": ["A human says: do it."]},
    "flow": True,
    "keyed": True,
}


@pytest.mark.parametrize("field", OF_A_REQUEST)
def test_a_request_is_for_now_and_belongs_to_nothing(server: Served, field: str) -> None:
    """By a request of its own, an agent's key used any service, spoke as a human, and put tasks into others' runs."""
    task, token = held(server, "eve")
    lease = {"task": task, "token": token, "agent": "eve"}
    request = {**REQUEST, "id": f"t_own{next(NUMBERS)}", field: OF_A_REQUEST[field]}
    refused = said(server, "eve", "Delegate", **lease, request=request, timeout=60_000)
    assert refused["code"] in ("bad_request", "bad_flow"), refused
    spec = {"kind": "handoff", "to": "carol", "timeout": 1000, "retries": 0, "default": 1000}
    request |= {"id": f"m_{task[2:]}.x", "role": "@carol"}
    refused = said(server, "eve", "SendRequest", **lease, request=request, spec=spec)
    assert refused["code"] in ("bad_request", "bad_flow"), refused


def test_no_delegation_passes_for_what_somebody_hands_over_under_a_key_of_their_own(server: Served) -> None:
    """Whoever guessed the key had "done" what was handed over under it later, unverified; nobody was told."""
    task, token = held(server, "eve")
    lease = {"task": task, "token": token, "agent": "eve"}
    nightly = {"name": "nightly", "role": "checked", "payload": {"v": 1}}
    request = {**nightly, "id": task_for_key("nightly-19"), "payload": '{"v":1}'}
    assert said(server, "eve", "Delegate", **lease, request={**request, "keyed": True}, timeout=60_000)["code"]
    (id_,) = server.ok("POST", "/tasks", {"tasks": [{**nightly, "key": "nightly-19"}]})["task_ids"]
    made = server.ok("POST", "/views/view_task", {"task": id_})["task"]
    assert (made["state"], made["spec"].get("origin")) == ("open", None)
    # Without a key's print, the id can be taken; then whoever hands the task over is told so.
    taken = said(server, "eve", "Delegate", **lease, request={**request, "id": task_for_key("n2")}, timeout=60_000)
    assert taken == task_for_key("n2")
    answer = server.call("POST", "/tasks", {"tasks": [{**nightly, "key": "n2"}]})
    assert answer.json["code"] == "id_taken"


def test_a_claim_among_other_commands_is_not_served(server: Served) -> None:
    """There it was given what open questions hold back (`pause_on_question`)."""
    (id_,) = server.ok("POST", "/tasks", {"tasks": [{"name": "work", "role": "build"}]})["task_ids"]
    claim = {"command": "Claim", "about": {"id": "mixed", "agent": "eve", "task": id_}}
    listed = {"command": "NoteListed", "about": {"id": "listed", "agent": "eve", "requests": []}}
    answers = server.ok("POST", "/commands", {"commands": [claim, listed]}, key="eve")["answers"]
    assert [one.get("error", {}).get("code") for one in answers] == ["not_alone", None]
    assert server.ok("POST", "/views/view_task", {"task": id_})["lease"] is None


def test_a_request_is_answered_and_declined_by_none_but_whom_it_is_for(server: Served) -> None:
    """Tried with every key: in its own name, in the name of whom it is for, and by taking it."""
    task, token = held(server, "eve")
    given = {"name": "for Carol", "kind": "handoff", "to": "carol"}
    id_ = server.ok("POST", f"/tasks/{task}/leases/{token}/request", given, key="eve")["request_id"]
    for key, name in (("ada", None), ("ada", "carol"), ("submitter", "carol"), ("viewer", "carol"), ("eve", None)):
        who = {} if name is None else {"agent_id": name}
        for verb, said_ in (("respond", {"answer": "forged"}), ("decline", {"reason": "forged"})):
            answer = server.call("POST", f"/requests/{id_}/{verb}", {**said_, **who}, key=key)
            assert answer.status in (403, 422), (key, name, verb, answer.body)
        claim = server.call("POST", "/claims", {"task_id": id_, **who}, key=key)
        assert claim.status == 403 or claim.json["claims"] == [], (key, name, claim.body)
    assert server.ok("GET", f"/tasks/{id_}")["task"]["state"] == "ready"
    assert server.ok("POST", f"/requests/{id_}/respond", {"answer": "hers"}, key="carol")["request_id"] == id_


def test_a_request_names_no_command_and_escapes_none(server: Served) -> None:
    """What verifies is run where the holder is supervised, with that user's rights."""
    task, token = held(server, "eve")
    lease = {"task": task, "token": token, "agent": "eve"}
    evil = {**REQUEST, "id": "t_evil", "policy": {"verify": ["sh", "-c", "id"]}}
    assert said(server, "eve", "Delegate", **lease, request=evil, timeout=60_000)["code"] == "not_allowed"
    spec = {"kind": "handoff", "to": "carol", "timeout": 1000, "retries": 0, "default": 1000}
    asked = {**evil, "id": f"m_{task[2:]}.evil", "role": "@carol"}
    assert said(server, "eve", "SendRequest", **lease, request=asked, spec=spec)["code"] == "not_allowed"
    plain = {**REQUEST, "id": "t_plain", "role": "checked"}
    assert said(server, "eve", "Delegate", **lease, request=plain, timeout=60_000) == "t_plain"
    assert server.ok("POST", "/views/view_task", {"task": "t_plain"})["task"]["spec"]["policy"]["verify"] == ["true"]


@pytest.mark.parametrize("role", ["run", "step"])
def test_no_key_of_an_agent_hands_over_a_command_that_a_human_would_resume(server: Served, role: str) -> None:
    """The front page told a human to type `allswell run --resume`, which ran the agent's command as that human."""
    command = {"command": ["touch", str(server.folder / "run_as_human")], "cwd": str(server.folder)}
    new = {"id": f"t_night{role}", "name": "night", "role": role, "payload": json.dumps({"run": command})}
    assert said(server, "submitter", "Submit", tasks=[new])["code"] == "not_allowed"
    task, token = held(server, "eve")
    lease = {"task": task, "token": token, "agent": "eve"}
    assert said(server, "eve", "Delegate", **lease, request=new, timeout=60_000)["code"] == "bad_role"
    spec = {"kind": "handoff", "to": f"role:{role}", "timeout": 1000, "retries": 0, "default": 1000}
    asked = {**new, "id": f"m_{task[2:]}.{role}"}
    assert said(server, "eve", "SendRequest", **lease, request=asked, spec=spec)["code"] == "bad_role"
    assert server.ok("GET", f"/tasks?role={role}&all=true")["tasks"] == []


def test_no_task_but_a_request_is_for_whoever_posts_webhooks(server: Served) -> None:
    """One that was none ended the delivery of all others."""
    new = {"id": "t_posted", "name": "x", "role": WEBHOOKS}
    assert said(server, "submitter", "Submit", tasks=[new])["code"] == "bad_role"
    task, token = held(server, "eve")
    lease = {"task": task, "token": token, "agent": "eve"}
    assert said(server, "eve", "Delegate", **lease, request=new, timeout=60_000)["code"] == "bad_role"


def test_an_agent_that_looks_through_others_tasks_takes_no_page_for_each() -> None:
    """A page of one was filled up by one look for each task of others."""

    async def scene(stage: Stage) -> None:
        await stage.watch.submit_all([{"name": f"n{number}", "role": "others"} for number in range(50)])
        eve, looks = Key("eve", "", (Right.AGENT,), Millis(0), roles=("build",), agents=("eve",)), 0
        records = engine_of(stage.watch).store

        class Counted:
            async def view_tasks(self, which: TaskFilter) -> list[TaskRow]:
                nonlocal looks
                looks += 1
                return await records.view_tasks(which)

        sight = VisibleRecords(cast("Any", Counted()), eve, _quota())
        assert await sight.view_tasks(TaskFilter(limit=1)) == []
        assert looks == 1

    play(scene)


def test_an_agents_question_allows_no_call(server: Served) -> None:
    """Only a supervisor has seen what was refused; a call that is allowed runs with another's rights."""
    task, token = held(server, "eve")
    call = {"tool": "Bash", "text": "Bash(rm -rf ~)", "input": '{"command":"rm -rf ~"}'}
    asked = {"task": task, "token": token, "agent": "eve", "text": "May I?", "denied": {"calls": [call], "count": 1}}
    question = said(server, "eve", "Ask", **asked)
    shown = server.ok("POST", "/views/view_question", {"question": question})
    assert "allow" not in {option["act"] for option in shown["options"]}, shown
    assert "rm -rf" not in shown["text"]


def test_an_agents_key_tells_only_of_its_own(server: Served) -> None:
    """The journal is what people and sinks are told from: not of others' tasks, nor of what a human has done."""
    task, _ = held(server, "carol")
    own, token = held(server, "eve")
    about = {"kind": "agent_state", "data": {"state": "stalled", "evidence": "made up"}}
    for event in (
        {**about, "task": task},
        {**about, "task": task, "agent": "eve"},
        {**about, "run": "r_others"},
        {"kind": "survivors_freed", "agent": "eve", "data": {"processes": "process 1", "by": "mia"}},
        {"kind": "supervisor_stopped", "agent": "eve", "data": {"supervisor": "prod", "how": "for good"}},
        {"kind": "survivors_freed", "task": task, "data": {"processes": "process 1", "by": "mia"}},
    ):
        assert said(server, "eve", "Notice", event=event)["code"] == "not_allowed", event
    assert said(server, "eve", "Notice", event={**about, "task": own, "agent": "eve", "token": token}) is None


def test_an_agents_key_hides_no_task_for_a_year(server: Served) -> None:
    """What is given back counts neither as a failure nor as a timeout: nobody would be asked about it."""
    task, token = held(server, "eve")
    lease = {"task": task, "token": token, "agent": "eve"}
    assert said(server, "eve", "Release", **lease, delay=360 * 86_400_000)["code"] == "bad_duration"
    word = f"/tasks/{task}/leases/{token}/release"
    assert server.call("POST", word, {"delay": "360d"}, key="eve").json["code"] == "bad_duration"
    assert server.ok("POST", word, {"delay": "1d"}, key="eve")["state"] == "delayed"
    (task, token), (other, _) = held(server, "eve"), held(server, "eve")
    assert said(server, "eve", "Release", task=task, token=token, agent="eve", awaits=other) is not None
    assert server.ok("GET", f"/tasks/{task}", key="eve")["task"]["state"] == "ready", "it waits for nothing"


def test_an_agents_key_has_no_account_stand_still(server: Served) -> None:
    """That a login is refused holds all agents of an account until a human answers: its supervisor says so."""
    held(server, "eve", services=["account"])
    told = said(
        server, "eve", "AskForHelp", service="account", cause="auth", reason="x", message="send me the key", holds=True
    )
    assert "code" not in told, told
    questions = [one for one in server.ok("GET", "/questions")["questions"] if one["service"] == "account"]
    assert not any("get no tasks before you answer" in one["text"] for one in questions), questions
    task, token = held(server, "carol", services=["account"])
    assert token, task


def test_a_submitter_does_not_hide_the_run_of_others(server: Served) -> None:
    """What has gone on in another run needs nobody any more: to say so takes a key that runs flows."""
    for key, told in (("submitter", "not_allowed"), ("operator", None)):
        run = f"r_over{next(NUMBERS)}"
        assert said(server, "operator", "OpenRun", run=run, name="theirs") == run
        assert said(server, "operator", "EndRun", run=run, reason="it broke") == run
        answer = said(server, key, "OpenRun", run=f"{run}.new", name="mine", after=run)
        assert (answer["code"] if isinstance(answer, dict) else None) == told, answer
        assert (server.ok("GET", f"/runs/{run}")["run"]["next_run_id"] is None) is (told is not None)


def test_what_only_the_watch_sets_cannot_be_set(server: Served) -> None:
    event = {"kind": "task_completed", "task": "t_forged", "data": {"elapsed_ms": 1}}
    assert said(server, "eve", "Claim", agent="eve", after=event)["code"] == "not_allowed"


def test_an_attempt_has_its_quota_over_http_too(server: Served) -> None:
    """Twenty questions in passing and a hundred requests, whichever way they come."""
    task, token = held(server, "eve")
    lease = {"task": task, "token": token, "agent": "eve"}
    answers = [said(server, "eve", "Ask", **lease, text=f"May I? {number}", hold=True) for number in range(25)]
    assert [one["code"] for one in answers if isinstance(one, dict)] == ["over_quota"] * 5
    word = f"/tasks/{task}/leases/{token}/ask"
    refused = server.call("POST", word, {"text": "May I?", "hold": True}, key="eve")
    assert (refused.status, refused.json["code"]) == (429, "over_quota")


def test_a_key_has_a_quota_over_all_that_it_hands_over(server: Served) -> None:
    """Bytes by the minute: a submitter cannot fill the disk in seconds."""
    payload = '"' + "x" * 1_000_000 + '"'
    taken = 0
    for number in range(12):
        tasks = [{"id": f"t_big{number}x{place}", "name": "big", "payload": payload} for place in range(7)]
        answer = said(server, "submitter", "Submit", tasks=tasks)
        if isinstance(answer, dict):
            assert answer["code"] == "over_quota"
            break
        taken += 7
    assert 50 <= taken <= 77


@pytest.mark.parametrize("act", ["increase_cost", "increase_timeout", "skip", "split", "accept", "probe"])
def test_an_agents_button_changes_neither_limits_nor_cost_nor_fate(server: Served, act: str) -> None:
    """A label is an agent's word: what it does is the watch's, and only lets the task go on."""
    task, token = held(server, "carol")
    options = [{"key": "no", "label": "No, send it back", "act": act}]
    asked = {"task": task, "token": token, "agent": "carol", "text": "Is it good?", "hold": True}
    assert said(server, "carol", "Ask", **asked, options=options)["code"] == "bad_question"
    called = [{"key": act, "label": "No, send it back", "act": "retry"}]
    assert said(server, "carol", "Ask", **asked, options=called)["code"] == "bad_question"
    word = f"/tasks/{task}/leases/{token}/ask"
    assert server.call("POST", word, {"text": "Is it?", "options": options}, key="carol").json["code"] == "bad_question"


def test_an_attempts_quota_holds_over_mcp_over_two_servers_and_after_a_restart(tmp_path: Path) -> None:
    """What an attempt has used up lies with its task: neither a restart nor another server begins anew."""

    async def scene(stage: Stage) -> None:
        await stage.watch.submit("work")
        key, asked = key_of("ada", Right.AGENT), 0
        async with tables(stage, tmp_path).agent(key) as agent:
            (lease,) = (await agent.do("claim"))["claims"]
        words = {"task": lease["task"]["task_id"], "token": lease["token"], "hold": True}
        for _ in range(2):  # each time a server that knows nothing of the other
            async with tables(stage, tmp_path).agent(key) as agent:
                for _ in range(10):
                    asked += 1
                    await agent.do("ask", text=f"May I? {asked}", **words)
        async with tables(stage, tmp_path).agent(key) as agent:
            assert (await agent.refused("ask", text="May I?", **words))[0] == "over_quota"

    play(scene)


def test_what_an_attempt_may_is_not_its_own_word(server: Served) -> None:
    task, token = held(server, "carol")
    lease = {"task": task, "token": token, "agent": "carol"}
    more = {"requests": 10_000, "questions": 10_000, "bytes": 1 << 40}
    answers = [said(server, "carol", "Ask", **lease, text="?", hold=True, quota=more) for _ in range(21)]
    assert answers[-1]["code"] == "over_quota"


def test_a_hundred_requests_of_an_attempt_and_no_more(server: Served) -> None:
    task, token = held(server, "carol")
    word = f"/tasks/{task}/leases/{token}/request"
    with contextlib.closing(server.connect()) as connection:
        answers = [
            server.say(connection, "POST", word, {"name": f"n{number}", "kind": "handoff", "to": "eve"}, key="carol")
            for number in range(101)
        ]
    assert {answer.status for answer in answers[:100]} == {201}, answers[0].body
    assert (answers[100].status, answers[100].json["code"]) == (429, "over_quota")


def test_what_the_watch_asks_of_itself_is_refused_in_words(server: Served) -> None:
    """Large integers, flows that are none, budgets that are none: each was answered with a bug."""
    flow = {"id": "t_taken", "name": "x", "run": "r_x", "flow": True}
    for key, command, about in (
        ("admin", "TakeUp", {"flow": {**flow, "flow": False}, "agent": "a", "length": 2**63 - 1}),
        ("admin", "TakeUp", {"flow": flow, "agent": "a", "length": 2**62}),
        ("admin", "ReachBudget", {"budget": "day", "spent": 2**63 - 1, "limit": 0, "until": None}),
        ("eve", "ReachBudget", {"budget": "budget:day", "spent": 2**63 - 1, "limit": 1, "until": None}),
        ("eve", "Complete", {"task": "t_x", "token": 2**63 - 1, "agent": "eve"}),
        ("eve", "CheckIn", {"task": "t_x", "token": -(2**63), "agent": "eve"}),
        ("submitter", "OpenRun", {"run": "r_" + "x" * 500, "name": "x"}),
        ("submitter", "OpenRun", {"run": "nothing", "name": "x"}),
    ):
        refused = said(server, key, command, **about)
        assert refused["kind"] != "bug", (command, refused)
        assert refused["detail"], (command, refused)


DEEP = "[" * (JSON_DEEPEST + 1) + "]" * (JSON_DEEPEST + 1)
NO_JSON = {
    "words": "no JSON",
    "nothing": "",
    "forged": '1,"task":{"state":"forged"}',
    "two": '"x" "y"',
    "endless": "1e400",
    "long": "9" * 5_000,
    "deep": DEEP,
    "very_deep": "[" * 100_000,
    "objects": '{"a":' * 300 + "1" + "}" * 300,
    "nan": "NaN",
}


@pytest.mark.parametrize("text", NO_JSON.values(), ids=NO_JSON)
def test_no_key_hands_over_or_brings_a_text_that_is_no_json(server: Served, text: str) -> None:
    """Another agent's inbox was answered with a bug for as long as the request stood there."""
    new = {"id": f"t_new{next(NUMBERS)}", "name": "x", "role": "build", "payload": text}
    refused = [said(server, "submitter", "Submit", tasks=[new])]
    task, token = held(server, "eve")
    lease = {"task": task, "token": token, "agent": "eve"}
    refused += [said(server, "eve", "Complete", **lease, result=text)]
    refused += [said(server, "eve", "Ask", **lease, text="Is it good?", result=text)]
    request = {"id": f"m_{task[2:]}.x", "name": "x", "role": "@carol", "payload": text}
    spec = {"kind": "handoff", "to": "carol", "timeout": 600_000, "retries": 0, "default": 1_000}
    refused += [said(server, "eve", "SendRequest", **lease, request=request, spec=spec)]
    delegated = {"id": f"t_new{next(NUMBERS)}", "name": "x", "role": "build", "payload": text}
    refused += [said(server, "eve", "Delegate", **lease, request=delegated, timeout=60_000)]
    asking, its_token = held(server, "carol")
    word = f"/tasks/{asking}/leases/{its_token}/request"
    asked = server.ok("POST", word, {"name": "help", "kind": "handoff", "to": "eve"}, key="carol")["request_id"]
    refused += [said(server, "eve", "Respond", request=asked, agent="eve", result=text)]
    assert [one["code"] in ("not_json", "too_deep") for one in refused] == [True] * 6, refused
    assert request["id"] not in {one["request_id"] for one in server.ok("GET", "/inbox", key="carol")["requests"]}
    for path in (f"/tasks/{task}", "/tasks?all=true", "/status"):
        server.ok("GET", path)


def test_what_is_as_deep_as_may_be_can_be_read_by_every_reader(server: Served) -> None:
    text = "[" * JSON_DEEPEST + "]" * JSON_DEEPEST
    task, token = held(server, "eve")
    assert said(server, "eve", "Complete", task=task, token=token, agent="eve", result=text) == task
    assert server.ok("GET", f"/tasks/{task}")["result"] == json.loads(text)


@pytest.mark.parametrize(
    "text", ["null", "0", '"a, [b]"', "[]", '"' + "[" * 1_000 + '"', '{"a":[{}]}', '["' + "[" * 1_000 + '"]', "[[],[]]"]
)
def test_json_is_json(text: str) -> None:
    check_json(text, "result")


def test_many_lists_beside_each_other_are_not_deep() -> None:
    check_json("[" + ",".join(["[1,{}]"] * 10_000) + "]", "result")
    with pytest.raises(Refused, match="within each other"):
        check_json("[" + ",".join([DEEP] * 10) + "]", "result")


@given(
    st.text(alphabet='[]{}",:\\ue+-.0189 nul', max_size=12)
    | st.sampled_from(["[1e999]", "[1e308]", "[-1e400]", '["1e999"]', '["\\ud800"]', '["\\\\",1e999]'])
)
def test_a_long_text_is_json_where_it_can_be_read(text: str) -> None:
    """No objects are made of it: for a million of them, nobody else would be served meanwhile."""
    long = " " * 5_000 + text
    try:
        msgspec.json.decode(long)
    except msgspec.DecodeError:
        with pytest.raises(Refused, match="is not JSON"):
            check_json(long, "result")
    else:
        check_json(long, "result")


def test_a_body_of_millions_of_values_is_refused_before_they_are_made(server: Served) -> None:
    """Six such answers from one agent's key had every other caller wait for seconds."""
    lists = b"[" + b"[]," * 2_500_000 + b"[]]"
    names = b"{" + b",".join(b'"%x":1' % number for number in range(700_000)) + b"}"
    task, token = held(server, "eve")
    before = server.processor_time
    for path, body in (
        ("/requests/m_x.y/respond", b'{"answer":%s}'),
        (f"/tasks/{task}/leases/{token}/done", b'{"result":%s}'),
        (f"/tasks/{task}/leases/{token}/request", b'{"to":"bob","payload":%s}'),
        ("/commands", b'{"commands":%s}'),
    ):
        for many in (lists, names, lists, names):
            answer = server.call("POST", path, raw=body % many, key="eve")
            assert (answer.status, answer.json["code"]) == (422, "too_many"), answer.body[:200]
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"respond","arguments":{"answer":%s}}}'
    key = {"Authorization": f"Bearer {server.keys['eve']}", "Accept": "application/json, text/event-stream"}
    for many in (names, b"[" + b"0," * 20_000 + b"0]"):
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", "/mcp", call % many, {**key, "Content-Type": "application/json"})
            assert json.loads(connection.getresponse().read())["code"] == "too_many"
    assert server.processor_time - before < 5
    text = '["' + "[]" * 150_000 + '"]'
    server.ok("POST", f"/tasks/{task}/leases/{token}/done", {"result": text}, key="eve")


_NESTED = st.recursive(
    st.none() | st.text(alphabet='[]{}",\\a', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[]{}"', max_size=2), inner, max_size=3)
    ),
)


@given(_NESTED, st.integers(0, JSON_DEEPEST + 5))
def test_the_depth_of_a_text_of_json_is_that_of_its_value(value: object, around: int) -> None:
    def depth(one: object) -> int:
        if not isinstance(one, dict | list):
            return 0
        return 1 + max(map(depth, one.values() if isinstance(one, dict) else one), default=0)

    text = "[" * around + json.dumps(value) + "]" * around + " "
    if around + depth(value) <= JSON_DEEPEST:
        check_json(text, "result")
    else:
        with pytest.raises(Refused, match="more than 200 lists and objects"):
            check_json(text, "result")


def strangers_in(folder: Path) -> list[Path]:
    """Every path that is not the store's own: it keeps journals, and a folder of waiting writers, that come and go."""
    return sorted(
        path
        for path in folder.rglob("*")
        if not any(part.startswith("allswell.db") for part in path.relative_to(folder).parts)
    )


@pytest.mark.parametrize("id_", ["../../victim", "/etc/victim", "a/b", ".."])
def test_neither_a_commands_nor_a_requests_id_is_a_path(server: Served, id_: str) -> None:
    """The id of a command may be any text, and no file is named after it; that of a request may not."""
    before = strangers_in(server.folder)
    new = {"id": f"t_named{next(NUMBERS)}", "name": "x"}
    assert said(server, "submitter", "Submit", id=id_, tasks=[new]) == [new["id"]]
    task, token = held(server, "carol")
    request = {"id": f"m_{task[2:]}.{id_}", "name": "x", "role": "@eve"}
    spec = {"kind": "handoff", "to": "eve", "timeout": 1000, "retries": 0, "default": 1000}
    lease = {"task": task, "token": token, "agent": "carol"}
    assert said(server, "carol", "SendRequest", **lease, request=request, spec=spec)["code"] == "bad_id"
    assert strangers_in(server.folder) == before


def test_a_budget_whose_sum_cannot_be_made_is_shut(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as reached, and a human is asked: nothing more is begun under a limit that cannot be held to."""

    async def scene(stage: Stage) -> None:
        watch = stage.watch
        await watch.submit("one")
        await watch.submit("two")
        lease = await watch.claim(agent="ada")
        assert lease is not None

        async def overflows(*_: object) -> None:
            raise OverflowError("integer overflow")

        await lease.spend(Expense(1))
        monkeypatch.setattr(type(engine_of(watch).store), "view_spent", overflows)
        assert await lease.hold_to_budgets(Budgets(day=1_000_000))
        monkeypatch.undo()
        assert len(await watch.questions()) == 1
        await lease.complete()
        assert await watch.claim(agent="ada") is None

    play(scene)


PRESENCE = {
    "name": "eve",
    "marker": "m",
    "host": "h",
    "pid": 1,
    "boot_id": "b",
    "pid_namespace": "p",
    "pid_start": 1,
    "started_at": 0,
    "beaten_at": 0,
}
POST = {"agent": "eve", "holder": "eve", "kind": "command"}
LEFT = {"holder": "eve", "task": "t_x", "name": "x", "attempt": 1, "host": "h", "boot_id": "b", "pid_namespace": "p"}


def kept(server: Served, word: str, value: object) -> Any:
    """What became of a word of the watch's own that an agent's key writes."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    before = server.ok("POST", "/views/recall", {"key": word}, key="eve") if len(word) < 300 else None
    return server.call("POST", "/views/swap", {"key": word, "before": before, "after": text}, key="eve")


def test_an_agents_key_writes_no_word_that_others_cannot_read(server: Served) -> None:
    """What a supervisor says of itself is read by every screen: only its own name, its own slots, and within bounds."""
    assert kept(server, "supervisor.eve", PRESENCE | {"posts": [POST]}).status == 200
    assert kept(server, "survivors.eve", LEFT | {"processes": [{"pid": 5, "start": 7}]}).status == 200
    for value in (
        "",
        "\0",
        "no JSON",
        "x" * (1 << 20),
        {},
        PRESENCE | {"name": "carol"},
        PRESENCE | {"posts": [POST | {"holder": "carol"}]},
        PRESENCE | {"dismissed_by": "mia"},
        PRESENCE | {"beaten_at": 1 << 62},
        PRESENCE | {"started_at": -1},
        PRESENCE | {"pace": 1 << 60},
        PRESENCE | {"host": "h" * 100_000},
        PRESENCE | {"posts": [POST | {"proof_at": 1 << 62}]},
        PRESENCE | {"posts": [POST | {"task": "t" * 1_000}]},
    ):
        refused = kept(server, "supervisor.eve", value)
        assert 400 <= refused.status < 500, (value, refused.body)
    for value in (
        "null",
        LEFT | {"holder": "carol"},
        LEFT | {"freed_by": "mia"},
        LEFT | {"since": 1 << 62},
        LEFT | {"processes": [{"pid": 1 << 70, "start": 1}]},
    ):
        refused = kept(server, "survivors.eve", value)
        assert 400 <= refused.status < 500, (value, refused.body)
    assert 400 <= kept(server, "supervisor.eve/" + "z" * 1_000, PRESENCE).status < 500
    for place in ("/status", "/agents", "/doctor"):
        assert server.call("GET", place).status == 200, place


def test_words_that_cannot_be_read_break_no_screen(server: Served) -> None:
    """An earlier version let an agent's key write anything there."""

    async def write(text: str) -> None:
        async with make_watch(store_for(server.store)) as watch:
            for word in ("supervisor.broken", "survivors.broken"):
                await engine_of(watch).store.put(word, text)

    asyncio.run(write("\1"))
    try:
        for place in ("/status", "/agents", "/doctor"):
            assert server.call("GET", place).status == 200, place
        task, token = held(server, "eve")
        asked = {"kind": "status_check", "to": "role:build", "name": "how is it?", "agent_id": "eve"}
        answer = server.call("POST", f"/tasks/{task}/leases/{token}/request", asked, key="eve")
        assert answer.status < 500, answer.body
    finally:
        asyncio.run(write(msgspec.json.encode(PRESENCE | {"name": "broken", "gone": True}).decode()))


def test_a_keys_quota_covers_all_that_it_can_make_grow() -> None:
    """Notes of check-ins, receipts, reasons, what a task needs: however it is said, it counts."""
    eve = Key("eve", "", (Right.AGENT,), Millis(0), roles=("build",), agents=("eve",))
    text = "x" * 2_000
    lease = (CommandId("c"), TaskId("t_x"), Token(1), AgentId("eve"))
    needs = tuple(TaskId(f"t_{number:098}") for number in range(20))
    refused: tuple[Command, ...] = (
        RecordReceipt(*lease, receipt="rc_x", status="done", path=text),
        AskForHelp(CommandId("c"), "s", ErrorClass.TRANSIENT, text, text),
        Submit(CommandId("c"), (NewTask(TaskId("t_y"), "y", needs=needs),)),
        Ask(
            *lease, text="?", options=tuple(Option(f"k{number}", "x" * 200, AnswerAction.RETRY) for number in range(10))
        ),
    )
    for command in refused:
        assert _is_refused_at_last(partial(_quota().counted, eve, command)), command
    assert _is_refused_at_last(partial(_quota().written, eve, 2_000))
    keys = _quota()
    again = [keys.counted(eve, CheckInAgain(*lease, note=text)) for _ in range(11)][-1]
    released = [keys.counted(eve, Release(*lease, reason=text)) for _ in range(11)][-1]
    with pytest.raises(Unavailable, match="used up"):  # what was done is brought later, and not lost
        keys.counted(eve, Complete(*lease, result=text))
    failed = [keys.counted(eve, Fail(*lease, failure=Failure(ErrorClass.TRANSIENT, text))) for _ in range(11)][-1]
    idle = [keys.counted(eve, EndIdle(*lease, said=text)) for _ in range(11)][-1]
    assert failed == Fail(*lease, failure=Failure(ErrorClass.TRANSIENT, "")), "an attempt can always end"
    assert idle == EndIdle(*lease, said="")
    assert again == CheckInAgain(*lease, note=""), "it is never refused, but its words are left out"
    assert released == Release(*lease, reason="released"), "nor is this"


def _quota() -> KeyQuota:
    clock = PausableClock(SystemClock())
    clock.stand()
    return KeyQuota(Quota(key_bytes=20_000), clock)


def _is_refused_at_last(write: Callable[[], object]) -> bool:
    try:
        for _ in range(11):
            write()
    except Refused as error:
        return error.code == "over_quota"
    return False
