"""The tools over the SDK's own client, in one process, on virtual time: what they do and refuse, and how they wait."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from mcp.shared.exceptions import MCPError

from allswell.domain.access.key import Right
from allswell.domain.mesh.request import MeshFigures
from allswell.domain.scopes import META
from allswell.interfaces.mcp.arguments import HINTS, WAIT_MOST
from allswell.interfaces.mcp.tools import OWN_TOOLS, TOOLS
from tests.engine.stage import MINUTE, Stage, play
from tests.interfaces.mcp.scene import Agent, Tables, key_of, tables, told

ADA = key_of("ada", Right.AGENT, roles=("build", ""))
BOB = key_of("bob", Right.AGENT, roles=("build",))
OPERATOR = key_of("mia", Right.OPERATOR)


def scene(tmp_path: Path, act: Callable[[Tables], Awaitable[None]], mesh: MeshFigures | None = None) -> None:
    async def played(stage: Stage) -> None:
        await act(tables(stage, tmp_path, mesh or MeshFigures()))

    play(played)


def test_the_list_is_what_clients_need(tmp_path: Path) -> None:
    """Twelve tools in one order, written out without references, annotated, and never hidden behind a search."""

    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada:
            listed = (await ada.client.list_tools()).tools
            assert [one.name for one in listed] == list(HINTS)
            for one in listed:
                for schema in (one.input_schema, one.output_schema):
                    assert schema is not None
                    Draft202012Validator.check_schema(schema)
                    assert schema["type"] == "object"
                    assert "$ref" not in str(schema)
                hints = one.annotations
                assert hints is not None
                assert (hints.destructive_hint, hints.open_world_hint) == (False, False)
                assert one.meta == {"anthropic/alwaysLoad": True}
                about = one.input_schema["properties"].values()
                assert all("description" in argument for argument in about), one.name
            assert ada.client.instructions is not None
            assert "claim" in ada.client.instructions

    scene(tmp_path, act)


def test_in_an_attempt_nobody_names_its_lease() -> None:
    """Whoever has one lease alone neither claims nor submits, and no tool asks which task is meant."""
    assert set(OWN_TOOLS) == set(TOOLS) - {"claim", "submit"}
    for tool in OWN_TOOLS.values():
        assert not {"task", "token", "agent", "roles"} & set(tool.input_schema["properties"]), tool.name


@pytest.mark.row("O2", "O9")
def test_a_day_of_an_agent(tmp_path: Path) -> None:
    """Claimed, checked in, asked while the work goes on, told of the answer, done: and said twice it counts once."""

    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada, at.agent(OPERATOR) as mia:
            made = await mia.do("submit", name="write it", payload={"n": 1}, key="k")
            assert await mia.do("submit", name="write it", payload={"n": 1}, key="k") == made
            claimed = await ada.call("claim", {})
            (claim,) = (claimed.structured_content or {})["claims"]
            assert (claimed.meta or {})[META] == claim["remaining_ms"]
            assert (claim["task"]["payload"], claim["agent_id"]) == ({"n": 1}, "ada")
            assert claim["renew_every_ms"] == 600_000
            lease = {"task": claim["task"]["task_id"], "token": claim["token"]}
            orders = await ada.do("checkin", **lease, note="half of it", progress="0.5")
            assert "within 600s" in orders["order"]
            asked = await ada.do("ask", **lease, text="Which one?", options=[{"key": "a", "label": "A"}], hold=True)
            waiting = asyncio.ensure_future(ada.do("answers", ids=[asked["question_id"]], wait_s=45))
            await asyncio.sleep(1)
            assert not waiting.done()
            await at.stage.watch.answer(asked["question_id"], "a", "the first")
            (answered,) = (await waiting)["questions"]
            assert (answered["choice"], answered["answer"]) == ("a", "the first")
            orders = await ada.do("checkin", **lease)
            assert orders["answers"] == [{"question_id": asked["question_id"], "choice": "a", "answer": "the first"}]
            for _ in range(2):
                assert (await ada.do("done", **lease, result="ok"))["state"] == "done"
            told_why = await ada.do("status", task=lease["task"])
            assert told_why["state"] == "done"

    scene(tmp_path, act)


@pytest.mark.row("O10")
def test_who_has_lost_its_lease_is_told_to_stop(tmp_path: Path) -> None:
    """A lease lapses without a check-in; whatever its holder says then is refused, and says what to do."""

    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada, at.agent(BOB) as bob:
            id_ = await at.stage.watch.submit("long", role="build")
            lease = await claimed(ada, lease_s=60)
            await asyncio.sleep(50)
            await ada.do("checkin", **lease)
            await asyncio.sleep(50)
            await ada.do("checkin", **lease, note="a check-in keeps it")
            await asyncio.sleep(61)
            second = await claimed(bob)
            assert (second["task"], second["token"]) == (id_, 2)
            for tool, more in (("checkin", {}), ("done", {}), ("fail", {"message": "x"}), ("release", {})):
                code, text = await ada.refused(tool, **lease, **more)
                assert code == "lease_lost"
                assert f"Stop working on {id_} now" in text
            assert (await ada.refused("ask", **lease, text="?"))[0] == "lease_lost"
            await bob.do("done", **second)

    scene(tmp_path, act)


async def claimed(agent: Agent, **how: object) -> dict[str, object]:
    (claim,) = (await agent.do("claim", **how))["claims"]
    return {"task": claim["task"]["task_id"], "token": claim["token"]}


def test_nothing_waits_longer_than_a_call_may(tmp_path: Path) -> None:
    """45 seconds at most, whatever is waited for; less where its caller has less; longer is refused."""

    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada:
            await at.stage.watch.submit("held", role="build")
            lease = await claimed(ada)
            asked = await ada.do("ask", **lease, text="?", hold=True)
            waits: dict[str, dict[str, object]] = {
                "claim": {},
                "answers": {"ids": [asked["question_id"]]},
                "inbox": {},
                "request": {**lease, "to": "expert", "text": "hm"},
            }
            for tool, arguments in waits.items():
                began = at.stage.seconds
                await ada.do(tool, **arguments, wait_s=WAIT_MOST)
                assert WAIT_MOST - 0.1 < at.stage.seconds - began < WAIT_MOST + 1, tool
                began = at.stage.seconds
                result = await ada.call(tool, {**arguments, "wait_s": WAIT_MOST}, meta=10_000)
                assert not result.is_error, told(result)
                assert at.stage.seconds - began <= 10, tool
                assert (await ada.refused(tool, **arguments, wait_s=WAIT_MOST + 1))[0] == "bad_arguments"

    scene(tmp_path, act)


def test_a_deadline_that_has_passed_ends_a_call(tmp_path: Path) -> None:
    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada:
            result = await ada.call("claim", {}, meta=0)
            assert result.is_error
            assert "time that you gave this call is up" in told(result)
            assert (await ada.call("claim", {}, meta="soon")).is_error

    scene(tmp_path, act)


def test_a_claim_that_is_given_up_takes_nothing(tmp_path: Path) -> None:
    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada:
            waiting = asyncio.ensure_future(ada.do("claim", wait_s=45))
            await asyncio.sleep(1)
            waiting.cancel()
            await asyncio.wait([waiting])
            await at.stage.watch.submit("later", role="build")
            await asyncio.sleep(1)
            (row,) = await at.stage.watch.tasks()
            assert row.lease is None

    scene(tmp_path, act)


def test_a_server_that_stops_lets_go_whoever_waits(tmp_path: Path) -> None:
    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada:
            waiting = asyncio.ensure_future(ada.refused("claim", wait_s=45))
            await asyncio.sleep(1)
            at.closing.set()
            code, text = await waiting
            assert code == "unavailable"
            assert "make this call again" in text

    scene(tmp_path, act)


@pytest.mark.parametrize(
    "tool, arguments, says",
    [
        ("claim", {"agent": 5}, "`$.agent`"),
        ("claim", {"agnt": "ada"}, "It takes: agent, role, task, wait_s, lease_s"),
        ("claim", {"agent": "eve"}, "speaks for ada"),
        ("claim", {"role": "secret"}, "not for 'secret'"),
        ("checkin", {}, "missing required field `task`"),
        ("checkin", {"task": "t_nix", "token": 1}, "Give the task_id and the token of your claim"),
        ("checkin", {"task": "t_nix\x00", "token": 1}, "no task"),
        ("checkin", {"task": "t_nix", "token": 10**30}, "token"),
        ("done", {"task": "t_nix", "token": 1, "result": "x"}, "Nothing was changed"),
        ("fail", {"task": "t_nix", "token": 1, "message": "x", "error_class": "nix"}, "error_class"),
        ("ask", {"task": "t_nix", "token": 1}, "`text`"),
        ("answers", {"ids": []}, "ids"),
        ("answers", {"ids": ["q_nix.1"]}, "question_id that ask answered"),
        ("answers", {"ids": ["m_nix"]}, "request_id that request answered"),
        ("respond", {"request": "m_nix"}, "no request"),
        ("request", {"task": "t_x", "token": 1, "to": "x", "text": "y", "kind": "webhook"}, "kind"),
        ("submit", {"name": "x"}, "may not submit tasks"),
        ("status", {}, "may not look at everything"),
        ("status", {"task": "nix"}, "no task"),
        ("inbox", {"agent": "bob"}, "speaks for ada"),
    ],
)
def test_bad_input_gets_one_clear_text(tmp_path: Path, tool: str, arguments: dict[str, object], says: str) -> None:
    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada:
            code, text = await ada.refused(tool, **arguments)
            assert says in text, text
            assert code != "bug"

    scene(tmp_path, act)


def test_there_is_no_other_tool_and_no_other_resource(tmp_path: Path) -> None:
    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada:
            with pytest.raises(MCPError, match="There are: claim"):
                await ada.client.call_tool("answer", {})
            for uri in ("allswell://tasks/t_nix", "allswell://keys/ada", "file:///etc/passwd", "allswell://tasks/../x"):
                with pytest.raises(MCPError, match="Refused"):
                    await ada.client.read_resource(uri)

    scene(tmp_path, act)


def test_an_agent_sees_its_own_and_nothing_of_others(tmp_path: Path) -> None:
    """Neither by a tool nor by a resource; and it speaks for nobody else's lease, though it knows the token."""

    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada, at.agent(BOB) as bob, at.agent(OPERATOR) as mia:
            id_ = await at.stage.watch.submit("bob's", role="build")
            lease = await claimed(bob)
            asked = await bob.do("ask", **lease, text="?", hold=True)
            for tool, arguments in (
                ("checkin", lease),
                ("done", lease),
                ("fail", {**lease, "message": "x"}),
                ("release", lease),
                ("ask", {**lease, "text": "?"}),
                ("request", {**lease, "to": "expert", "text": "?"}),
                ("answers", {"ids": [asked["question_id"]]}),
                ("status", {"task": id_}),
            ):
                code, _ = await ada.refused(tool, **arguments)
                assert code in ("unknown_task", "unknown_question"), tool
            for part in ("", "/why", "/receipts"):
                with pytest.raises(MCPError, match="not yours"):
                    await ada.client.read_resource(f"allswell://tasks/{id_}{part}")
            assert len((await bob.client.read_resource(f"allswell://tasks/{id_}")).contents) == 1
            with pytest.raises(MCPError, match="may not look at everything"):
                await bob.client.read_resource(f"allswell://tasks/{id_}/receipts")
            assert len((await mia.client.read_resource(f"allswell://tasks/{id_}/receipts")).contents) == 1
            assert (await mia.refused("claim", agent="mia"))[0] == "not_allowed"

    scene(tmp_path, act)


@pytest.mark.row("O5", "M1", "M2")
def test_agents_ask_each_other(tmp_path: Path) -> None:
    """By role and by name: who asks sees its own request, and who is asked answers it once."""

    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada, at.agent(BOB) as bob:
            assert (await bob.do("inbox"))["requests"] == []
            await at.stage.watch.submit("one", role="build")
            lease = await claimed(ada)
            sent = await ada.do("request", **lease, to="bob", text="what is it?", kind="handoff", payload=[1])
            assert sent["state"] == "open"
            (item,) = (await bob.do("inbox", wait_s=5))["requests"]
            assert (item["request_id"], item["payload"]) == (sent["request_id"], [1])
            for _ in range(2):
                await bob.do("respond", request=item["request_id"], answer="that")
            (came,) = (await ada.do("answers", ids=[sent["request_id"]], wait_s=5))["requests"]
            assert (came["state"], came["result"]) == ("done", "that")
            sent = await ada.do("request", **lease, to="bob", text="and this?", kind="handoff")
            assert [one["summary"] for one in (await bob.do("inbox", wait_s=5))["requests"]] == ["and this?"]
            assert [one["new"] for one in (await bob.do("inbox", wait_s=5))["requests"]] == [False]
            assert (await bob.do("inbox", mesh=True))["requests"] == []
            for _ in range(2):
                await bob.do("decline", request=sent["request_id"], reason="not today")
            (came,) = (await ada.do("answers", ids=[sent["request_id"]], wait_s=5))["requests"]
            assert (came["state"], came["result"]) == ("failed", "bob declined it: not today")
            code, text = await ada.refused("request", **lease, to="bbo", text="?", kind="handoff")
            assert (code, "'bob'" in text) == ("unknown_agent", True)
            expert = await ada.do("request", **lease, to="expert", text="focused", timeout_s=30)
            (late,) = (await ada.do("answers", ids=[expert["request_id"]], wait_s=45))["requests"]
            assert (late["state"], late["result"]) == ("failed", "delegation_timeout")

    scene(tmp_path, act, MeshFigures(agents=()))


@pytest.mark.row("M2")
def test_a_request_that_nobody_answers_takes_the_task_away(tmp_path: Path) -> None:
    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada:
            await at.stage.watch.submit("one", role="build")
            lease = await claimed(ada, lease_s=3_600)
            sent = await ada.do("request", **lease, to="bob", text="?", kind="status_check", timeout_s=5, retries=0)
            await asyncio.sleep(MINUTE)
            (came,) = (await ada.do("answers", ids=[sent["request_id"]]))["requests"]
            assert (came["blocked"], came["fallback"]) == (True, "next_task")
            assert (await ada.refused("checkin", **lease))[0] == "lease_lost"
            assert came["next"] is None  # there was nothing else to do

    scene(tmp_path, act)


@pytest.mark.row("M2", "M5")
def test_a_request_that_need_not_be_answered_leaves_the_task_and_its_answer_comes_with_a_check_in(
    tmp_path: Path,
) -> None:
    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada, at.agent(BOB) as bob:
            await at.stage.watch.submit("one", role="build")
            lease = await claimed(ada, lease_s=3_600)
            vain = {"to": "bob", "text": "?", "kind": "status_check", "timeout_s": 5, "retries": 0, "blocks": False}
            sent = await ada.do("request", **lease, **vain)
            await asyncio.sleep(MINUTE)
            assert (await ada.do("checkin", **lease))["requests"] == []
            assert (await ada.do("answers", ids=[sent["request_id"]]))["requests"][0]["state"] == "open"
            assert await at.stage.told("request_blocked") == []
            await bob.do("respond", request=sent["request_id"], answer="late, but here")
            (answer,) = (await ada.do("checkin", **lease))["requests"]
            assert (answer["request_id"], answer["agent_id"]) == (sent["request_id"], "bob")
            assert answer["result"] == "late, but here"
            await ada.do("done", **lease)

    scene(tmp_path, act)


@pytest.mark.row("M2")
def test_who_waits_for_a_request_in_vain_has_the_next_task_that_is_ready(tmp_path: Path) -> None:
    """Both tools that wait claim it, once: asked again, they name the same one."""

    async def act(at: Tables) -> None:
        async with at.agent(ADA) as ada:
            await at.stage.watch.submit("one", role="build")
            lease = await claimed(ada, lease_s=3_600)
            two, three = [await at.stage.watch.submit(name, role="build") for name in ("two", "three")]
            vain = {"to": "bob", "text": "?", "kind": "status_check", "timeout_s": 5, "retries": 0}
            came = await ada.do("request", **lease, **vain, wait_s=30)
            assert (came["blocked"], came["next"]["task"]["task_id"]) == (True, two)
            (again,) = (await ada.do("answers", ids=[came["request_id"]]))["requests"]
            assert again["next"]["token"] == came["next"]["token"]
            lease = {"task": two, "token": came["next"]["token"]}
            sent = await ada.do("request", **lease, **vain)
            (came,) = (await ada.do("answers", ids=[sent["request_id"]], wait_s=30))["requests"]
            assert (came["blocked"], came["next"]["task"]["task_id"]) == (True, three)
            assert came["next"]["renew_every_ms"] == 600_000
            await ada.do("done", task=three, token=came["next"]["token"])

    scene(tmp_path, act)
