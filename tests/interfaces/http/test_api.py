"""What the command line can do, over HTTP: through a real server, with the shapes of `--json`."""

import contextlib
import threading
import time
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import jsonschema
import pytest

from allswell.domain.scopes import HEADER
from allswell.interfaces.http.routing import openapi_document
from allswell.interfaces.http.server import PREFIX, ROUTES
from tests.interfaces.http.served import Served

LEASE = "/tasks/{}/leases/{}"


def submit(served: Served, *names: str, role: str = "build", **fields: object) -> list[str]:
    tasks = [{"name": name, "role": role, **fields} for name in names]
    ids: list[str] = served.ok("POST", "/tasks", {"tasks": tasks}, key="submitter")["task_ids"]
    return ids


def claim(served: Served, task: str | None = None, key: str = "ada", **how: object) -> dict[str, Any]:
    (got,) = served.ok("POST", "/claims", {"task_id": task, **how}, key=key)["claims"]
    return dict(got)


def test_an_agents_day(served: Served) -> None:
    """Handed over, claimed, checked in on, asked about, answered, done: each by whoever may."""
    (task,) = submit(served, "a day", payload={"file": "notes.md"})
    claimed = claim(served, task)
    assert claimed["task"]["payload"] == {"file": "notes.md"}
    assert claimed["agent_id"] == "ada"
    lease = LEASE.format(task, claimed["token"])
    orders = served.call("POST", f"{lease}/checkin", {"note": "half", "progress": 0.5}, key="ada")
    assert orders.json["deadline"] == claimed["deadline"]
    assert 0 < int(orders.headers[HEADER.lower()]) <= claimed["remaining_ms"]
    asked = served.ok("POST", f"{lease}/ask", {"text": "May I?", "hold": True}, key="ada")["question_id"]
    made = served.ok("POST", f"{lease}/request", {"role": "critic", "name": "is it good?"}, key="ada")
    assert made["state"] == "open"
    decided = served.ok("POST", f"/questions/{asked}/answer", {"option": "reply", "text": "yes", "by": "mia"})
    assert decided["choice"] == "reply"
    answered = served.ok("GET", f"/questions/{asked}?wait_ms=1000", key="ada")
    assert (answered["answer"], answered["answered_by"]) == ("yes", "mia (key admin)")
    told = [{"question_id": asked, "choice": "reply", "answer": "yes"}]
    for proof in (True, False):
        assert served.ok("POST", f"{lease}/checkin", {"proof": proof}, key="ada")["answers"] == told
    done = served.ok("POST", f"{lease}/done", {"result": [1, 2]}, key="ada")
    assert (done["said"], done["state"]) == ("done", "done")
    shown = served.ok("GET", f"/tasks/{task}", key="viewer")
    assert (shown["result"], shown["attempts"][0]["outcome"]) == ([1, 2], "done")
    assert served.ok("GET", f"/why/{task}", key="viewer")["task_id"] == task
    late = served.call("POST", f"{lease}/done", {"result": 3}, key="ada")
    assert late.status == 409
    assert late.json["kind"] == "lease_lost"
    assert late.json["reason"] == "it was completed"
    told = served.ok("GET", f"/events?task_id={task}&limit=1000", key="viewer")["events"]
    signed = {one["kind"]: one["data"].get("key") for one in told}
    assert signed["task_submitted"] == "submitter"
    assert signed["task_claimed"] == signed["task_checked_in"] == signed["task_completed"] == "ada"
    assert signed["question_answered"] == "admin"


def test_a_call_that_is_repeated_counts_once(served: Served) -> None:
    """A lost answer is settled by asking again under the same key."""
    once = {"Idempotency-Key": "once"}
    body = {"tasks": [{"name": "twice", "role": "test"}, {"name": "thrice", "role": "test"}]}
    first = served.ok("POST", "/tasks", body, key="submitter", headers=once)
    assert served.ok("POST", "/tasks", body, key="submitter", headers=once)["task_ids"] == first["task_ids"]
    (got,) = served.ok("POST", "/claims", {"roles": ["test"]}, key="ada", headers=once)["claims"]
    (again,) = served.ok("POST", "/claims", {"roles": ["test"]}, key="ada", headers=once)["claims"]
    assert (again["task"]["task_id"], again["token"]) == (got["task"]["task_id"], got["token"])
    lease = LEASE.format(got["task"]["task_id"], got["token"])
    for _ in range(2):
        assert served.ok("POST", f"{lease}/done", key="ada", headers=once)["state"] == "done"
    (other,) = set(first["task_ids"]) - {got["task"]["task_id"]}
    for _ in range(2):
        assert served.ok("POST", f"/tasks/{other}/cancel", headers=once)["cancelled"]
    assert served.call("POST", f"/tasks/{other}/cancel").status == 422
    runs = {served.ok("POST", "/runs", {"name": "night"}, headers=once)["run_id"] for _ in range(2)}
    assert len(runs) == 1


def test_a_claim_waits_for_work(served: Served) -> None:
    """Long polling: the task that comes is claimed at once, and the time of the caller bounds the wait."""
    got: list[Any] = []
    waiting = threading.Thread(
        target=lambda: got.append(claim(served, key="bob", roles=["build"], wait_ms=20_000)["task"]["name"])
    )
    waiting.start()
    submit(served, "waited for")
    waiting.join(15)
    assert got == ["waited for"]
    began = time.monotonic()
    empty = served.call("POST", "/claims", {"roles": ["test"], "wait_ms": 45_000}, key="ada", headers={HEADER: "300"})
    assert empty.json["claims"] == []
    assert time.monotonic() - began < 10
    assert served.call("POST", "/claims", {"wait_ms": 45_001}, key="ada").status == 422


def test_runs_lists_and_pages(served: Served) -> None:
    run = served.ok("POST", "/runs", {"name": "paged", "timeout": "8h"})["run_id"]
    ids = submit(served, "p1", "p2", "p3", role="none", run=run)
    page = served.ok("GET", f"/tasks?run={run}&limit=2", key="viewer")
    rest = served.ok("GET", f"/tasks?run={run}&limit=2&after={page['next']}", key="viewer")
    assert [one["task_id"] for one in (*page["tasks"], *rest["tasks"])] == ids
    assert rest["next"] is None
    assert served.ok("GET", f"/runs/{run}")["tasks"] == {"ready": 3}
    assert served.ok("POST", f"/runs/{run}/end", {"reason": "enough"})["run_id"] == run
    assert [one["run_id"] for one in served.ok("GET", "/runs")["runs"] if one["reason"] == "enough"] == [run]
    for path in ("/status", "/board", "/agents", "/tracking", "/comms", "/deliveries", "/receipts", "/questions"):
        assert served.ok("GET", path, key="viewer")
    assert served.ok("POST", "/deliveries/retry", key="operator")["did"] == "retried"


def test_keys_are_made_and_end(served: Served) -> None:
    made = served.ok("POST", "/keys", {"name": "eve", "rights": ["viewer"], "expires": "1h"})
    assert served.ok("GET", "/status", key=made["secret"])["there"]
    assert served.ok("POST", "/keys/eve/revoke")["state"] == "revoked"
    refused = served.call("GET", "/status", key=made["secret"])
    assert (refused.status, refused.json["code"]) == (401, "key_revoked")
    assert {one["name"] for one in served.ok("GET", "/keys")["keys"]} >= {"eve", "ada"}
    assert b"hash" not in served.call("GET", "/keys").body


def test_the_journal_is_followed(served: Served) -> None:
    """What happens is told at once; who comes back says where it was, and misses nothing."""

    def follow(query: str, last: str | None = None) -> tuple[HTTPConnection, HTTPResponse]:
        connection = served.connect()
        headers = {"Authorization": f"Bearer {served.keys['viewer']}", "Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = last
        connection.request("GET", f"{PREFIX}/events{query}", headers=headers)
        return connection, connection.getresponse()

    def told(response: HTTPResponse, count: int) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        one: dict[str, str] = {}
        while len(found) < count:
            line = response.readline().decode().rstrip("\n")
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                one[name] = value
            elif one:
                found.append(one)
                one = {}
        return found

    with contextlib.closing(follow("?kind=task_submitted")[0]):
        connection, response = follow("?kind=task_submitted")
        with contextlib.closing(connection):
            assert "text/event-stream" in (response.getheader("content-type") or "")
            response.readline()
            submit(served, "told 1", "told 2", role="none")
            first, _ = told(response, 2)
        submit(served, "told 3", role="none")
        connection, response = follow("?kind=task_submitted", first["id"])
        with contextlib.closing(connection):
            missed = told(response, 2)
            assert ["told 2" in missed[0]["data"], "told 3" in missed[1]["data"]] == [True, True]
    assert served.call("GET", "/events", key="ada", headers={"Accept": "text/event-stream"}).status == 403
    assert served.call("GET", "/events?after=nonsense").json["code"] == "bad_cursor"


def test_every_answer_is_as_openapi_says(served: Served) -> None:
    """The description is made of the routes; what they really answer fits it, and so does each problem."""
    described = served.ok("GET", "/openapi.json", key="viewer")
    assert described == openapi_document(ROUTES, PREFIX)
    assert described["openapi"] == "3.1.0"
    (task,) = submit(served, "described", role="none")
    samples = {
        ("post", "/tasks"): served.call("POST", "/tasks", {"tasks": [{"name": "x", "role": "none"}]}, key="submitter"),
        ("get", "/tasks"): served.call("GET", "/tasks?limit=3"),
        ("get", "/tasks/{task}"): served.call("GET", f"/tasks/{task}"),
        ("get", "/why/{id}"): served.call("GET", f"/why/{task}"),
        ("get", "/status"): served.call("GET", "/status"),
        ("get", "/events"): served.call("GET", "/events?limit=5"),
        ("get", "/keys"): served.call("GET", "/keys"),
        ("post", "/claims"): served.call("POST", "/claims", {"roles": ["test"]}, key="ada"),
        ("get", "/agents"): served.call("GET", "/agents"),
    }
    for (method, path), answer in samples.items():
        told = described["paths"][PREFIX + path][method]["responses"][str(answer.status)]
        fits(described, told["content"]["application/json"]["schema"], answer.json)
    for answer in (served.call("GET", "/tasks/nobody"), served.call("GET", "/nowhere"), served.call("POST", "/status")):
        assert answer.headers["content-type"] == "application/problem+json"
        fits(described, described["components"]["schemas"]["WireProblem"], answer.json)
        assert answer.json["status"] == answer.status


def fits(described: dict[str, Any], schema: dict[str, Any], value: object) -> None:
    jsonschema.Draft202012Validator({**schema, "components": described["components"]}).validate(value)


@pytest.mark.parametrize(
    "method, path, body, status, code",
    [
        ("POST", "/tasks", {"tasks": []}, 422, "bad_body"),
        ("POST", "/tasks", {"tasks": [{"name": "x", "colour": "red"}]}, 422, "bad_body"),
        ("POST", "/tasks", {"tasks": [{"name": "x", "needs": ["t_0000000000000000"]}]}, 404, "unknown_task"),
        ("POST", "/tasks", {"tasks": [{"name": "x\u0000"}]}, 422, "bad_name"),
        ("GET", "/tasks?limit=0", None, 400, "bad_query"),
        ("GET", "/tasks?colour=red", None, 400, "bad_query"),
        ("GET", "/tasks/t_0000000000000000", None, 404, "unknown_task"),
        ("POST", "/questions/q_none.1/answer", {"option": "skip"}, 404, "unknown_question"),
        ("POST", "/keys", {"name": "ada", "rights": ["viewer"]}, 409, "key_exists"),
        ("POST", "/views/view_nothing", {}, 404, "unknown_view"),
        ("POST", "/views/view_task", {"task": 1}, 422, "bad_body"),
        ("POST", "/commands", {"commands": [{"command": "Tick", "about": {}}]}, 404, "unknown_command"),
        ("POST", "/commands", {"commands": [{"command": "Cancel", "about": {}}]}, 422, "bad_command"),
    ],
)
def test_what_cannot_be_is_told(served: Served, method: str, path: str, body: object, status: int, code: str) -> None:
    answer = served.call(method, path, body)
    assert (answer.status, answer.json["code"]) == (status, code), answer.body
