"""What lies beside the store, over HTTP: receipts, logs, diffs, check-ups; and what agents ask of each other."""

import asyncio
import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.interfaces.cli.upkeep import run
from tests.interfaces.http.served import Served, make_keys, started
from tests.interfaces.http.test_api import LEASE, claim, fits, submit
from tests.patience import SECONDS


@pytest.fixture(scope="module")
def failed(served: Served) -> str:
    """A task whose one attempt has changed a file, said two things, and failed."""
    folder = served.folder
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True, timeout=SECONDS)
    said = typed(
        served.store,
        "run",
        "--name",
        "half a job",
        "--",
        "sh",
        "-c",
        "echo one; echo two; echo three >&2; echo x > left.txt; exit 3",
        cwd=str(folder),
    )
    assert said.returncode == 3, said
    (task,) = served.ok("GET", "/tasks?name=half%20a%20job")["tasks"]
    return str(task["task_id"])


def typed(store: str, *words: str, cwd: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """A command line on a store, which may be a server."""
    name = words[:2] if words[0] == "worker" else words[:1]
    ran = run(*name, "--store", store, *words[len(name) :], cwd=Path(cwd or "."), **env)
    return subprocess.CompletedProcess(words, ran.code, ran.out, ran.err)


def test_receipts_logs_and_diffs(served: Served, failed: str) -> None:
    """What an attempt left is shown in full, a page at a time, and followed to its end."""
    page = served.ok("GET", f"/receipts?task={failed}&limit=1", key="viewer")
    (receipt,) = page["receipts"]
    assert (receipt["task_id"], receipt["exit_code"], page["next"]) == (failed, 3, None)
    assert receipt["says"]
    shown = served.ok("GET", f"/receipts/{receipt['receipt_id']}", key="viewer")["receipt"]
    assert shown == receipt
    assert served.call("GET", "/receipts?after=nobody").json["code"] == "bad_cursor"
    log = served.ok("GET", f"/tasks/{failed}/log", key="viewer")
    told = [(one["stream"], one["text"]) for one in log["lines"]]
    assert told == [("stdout", "one"), ("stdout", "two"), ("stderr", "three")]
    assert log["over"]
    assert served.ok("GET", f"/tasks/{failed}/log?after={log['next']}", key="viewer")["lines"] == []
    assert served.call("GET", f"/tasks/{failed}/log?limit=1&raw=true").body == b"three\n"
    assert served.call("GET", f"/tasks/{failed}/log?attempt=7").json["code"] == "no_log"
    assert served.call("GET", f"/tasks/{failed}/log?after=1.x.2").json["code"] == "bad_cursor"
    streamed = served.call("GET", f"/tasks/{failed}/log", headers={"Accept": "text/event-stream"}).body.decode()
    assert streamed.count("event: line") == 3
    assert streamed.endswith("event: over\ndata: {}\n\n")
    diff = served.ok("GET", f"/tasks/{failed}/diff", key="viewer")
    assert [one["path"] for one in diff["changed"]] == ["left.txt"]
    assert "+x" in diff["diff"]
    for path in (f"/tasks/{failed}/log", f"/tasks/{failed}/diff", "/receipts"):
        for key in ("ada", "submitter"):
            assert served.call("GET", path, key=key).status == 403, (path, key)


def test_the_command_line_has_them_from_elsewhere(served: Served, failed: str) -> None:
    """`receipts`, `show rc_…`, `logs`, `diff` and `doctor` on a server's URL say what they say beside the store."""
    receipt = f"rc_{failed.removeprefix('t_')}.1"
    for words in (
        ("receipts", "--json"),
        ("show", receipt, "--json"),
        ("logs", failed, "--json"),
        ("logs", failed, "-f"),
        ("diff", failed),
    ):
        there = typed(served.url, *words, ALLSWELL_KEY=served.keys["viewer"])
        here = typed(served.store, *words)
        assert there.returncode == here.returncode == 0, there
        assert without_advice(there.stdout) == without_advice(here.stdout), words
    listed = typed(served.url, "receipts", ALLSWELL_KEY=served.keys["viewer"]).stdout
    shown = typed(served.url, "show", receipt, ALLSWELL_KEY=served.keys["viewer"]).stdout
    assert receipt in listed
    assert receipt in shown
    doctor = typed(served.url, "doctor", "--json", ALLSWELL_KEY=served.keys["viewer"])
    findings = {one["check"]: one["verdict"] for one in json.loads(doctor.stdout)["findings"]}
    assert findings["store"] == findings["tasks"] == "ok"
    assert "sqlite" in doctor.stdout
    assert "there is no receipt" in typed(served.url, "show", "rc_no.1", ALLSWELL_KEY=served.keys["viewer"]).stderr


def without_advice(said: str) -> str:
    """What was said, but not how it is typed, which names the store."""
    return re.sub(r'"advice":\{.*?\}', "", said)


def test_the_watch_itself(served: Served) -> None:
    """Settings, services, queues, costs, builds, ledgers and what is unaccounted for: as OpenAPI says."""
    described = served.ok("GET", "/openapi.json", key="viewer")
    for path in (
        "/config",
        "/services",
        "/queues",
        "/builds",
        "/unaccounted",
        "/doctor",
        "/costs",
        "/costs?by=role&since=1h",
        "/agents/ada/ledger?since=2h",
    ):
        answer = served.call("GET", path, key="viewer")
        assert answer.status == 200, (path, answer.body)
        plain = path.partition("?")[0].replace("/ada/", "/{agent}/")
        told = described["paths"][f"/api/v1{plain}"]["get"]["responses"]["200"]
        fits(described, told["content"]["application/json"]["schema"], answer.json)
        shared = path == "/services"  # whoever calls a service shares its breaker
        assert served.call("GET", path, key="ada").status == (200 if shared else 403), path
    assert served.ok("GET", "/unaccounted", key="viewer")["task_ids"] == []
    assert "agent_timeout" in {one["name"] for one in served.ok("GET", "/config", key="viewer")["settings"]}


def test_agents_ask_and_answer_each_other(served: Served) -> None:
    """A request goes into an inbox, is answered by whom it is for and nobody else, and its asker sees the answer."""
    (task,) = submit(served, "asks")
    lease = LEASE.format(task, claim(served, task)["token"])
    once = {"Idempotency-Key": "asked-once"}
    asking = {"kind": "handoff", "to": "bob", "name": "server access", "payload": {"host": "db"}}
    sent = served.ok("POST", f"{lease}/request", asking, key="ada", headers=once)["request_id"]
    assert served.ok("POST", f"{lease}/request", asking, key="ada", headers=once)["request_id"] == sent
    given = {"role": "critic", "name": "is it good?"}
    handed = {served.ok("POST", f"{lease}/request", given, key="ada", headers=once)["request_id"] for _ in range(2)}
    assert len(handed) == 1  # delegated once
    assert served.ok("POST", f"{lease}/request", given, key="ada")["request_id"] not in handed
    (item,) = served.ok("GET", "/inbox?wait_ms=1000", key="bob")["requests"]
    assert (item["request_id"], item["agent_id"], item["payload"]) == (sent, "ada", {"host": "db"})
    assert served.call("POST", f"/requests/{sent}/respond", {"agent_id": "bob", "answer": 1}, key="ada").status == 403
    assert served.call("GET", "/inbox?agent_id=bob", key="ada").status == 403
    assert served.ok("GET", f"{lease}/requests/{sent}", key="ada")["state"] == "open"
    (hers,) = submit(served, "asked meanwhile")
    word = LEASE.format(hers, claim(served, hers, key="bob")["token"])
    assert served.ok("POST", f"{word}/checkin", {}, key="bob")["inbox"] == [sent]
    assert served.ok("POST", f"{lease}/checkin", {}, key="ada")["inbox"] == []
    served.ok("POST", f"{word}/done", {}, key="bob")
    for _ in range(2):
        served.ok("POST", f"/requests/{sent}/respond", {"answer": {"key": "in the vault"}}, key="bob", headers=once)
    came = served.ok("GET", f"{lease}/requests/{sent}?wait_ms=5000", key="ada")
    assert (came["state"], came["result"]) == ("done", {"key": "in the vault"})
    assert served.call("GET", f"{lease}/requests/{task}", key="ada").json["code"] == "unknown_request"
    last: dict[str, object] = {**asking, "retries": 0}
    declined = served.ok("POST", f"{lease}/request", last, key="ada")["request_id"]
    (item,) = served.ok("GET", "/inbox?wait_ms=1000", key="bob")["requests"]
    assert item["request_id"] == declined
    assert [one["new"] for one in served.ok("GET", "/inbox?wait_ms=1", key="bob")["requests"]] == [False]
    assert served.ok("GET", "/inbox?mesh=true", key="bob")["requests"] == []
    (others,) = served.ok("GET", "/inbox?mesh=true&agent_id=eve")["requests"]  # all are asked with its last delivery
    assert (others["request_id"], others["to"], others["asked_at"]) == (declined, "bob", item["asked_at"])
    assert served.call("POST", f"/requests/{declined}/decline", {"agent_id": "bob"}, key="ada").status == 403
    for _ in range(2):
        served.ok("POST", f"/requests/{declined}/decline", {"reason": "no access"}, key="bob", headers=once)
    came = served.ok("GET", f"{lease}/requests/{declined}", key="ada")
    assert (came["state"], came["result"]) == ("failed", "bob declined it: no access")
    asking["to"] = "bobb"
    assert "did you mean" in served.call("POST", f"{lease}/request", asking, key="ada").json["detail"]
    served.ok("POST", f"{lease}/done", {}, key="ada")


@pytest.mark.row("M2")
def test_who_waits_over_http_learns_of_the_block_and_has_the_next_task_once(served: Served) -> None:
    """Looking changes nothing, and says how it stands; the call that waits claims, and repeated it says the same."""
    task, following = submit(served, "asks in vain", "does this instead", priority=900)
    lease = LEASE.format(task, claim(served, task)["token"])
    asking = {"kind": "status_check", "to": "bob", "name": "there?", "timeout": 300, "retries": 0}
    sent = served.ok("POST", f"{lease}/request", asking, key="ada")["request_id"]
    waited = served.ok("POST", f"{lease}/requests/{sent}/wait", {"wait_ms": 1}, key="ada")
    assert (waited["state"], waited["blocked"], waited["next"]) == ("open", False, None)
    shown = served.ok("GET", f"{lease}/requests/{sent}?wait_ms=30000", key="ada")
    assert (shown["state"], shown["blocked"], shown["fallback"], shown["next"]) == ("blocked", True, "next_task", None)
    given = {"wait_ms": 30_000, "roles": ["build"], "lease_ms": 60_000}
    first, again = (served.ok("POST", f"{lease}/requests/{sent}/wait", given, key="ada") for _ in range(2))
    assert (first["blocked"], first["fallback"], first["next"]["task"]["task_id"]) == (True, "next_task", following)
    assert (first["next"]["agent_id"], first["next"]["renew_every_ms"]) == ("ada", 60_000)
    assert again["next"]["token"] == first["next"]["token"]
    assert served.call("POST", f"{lease}/requests/{sent}/wait", given, key="bob").status in (403, 404, 422)
    served.ok("POST", LEASE.format(following, first["next"]["token"]) + "/done", {}, key="ada")
    served.ok("POST", f"/requests/{sent}/respond", {"answer": "late"}, key="bob")
    assert served.ok("GET", f"{lease}/requests/{sent}", key="ada")["result"] == "late"
    (claimed,) = served.ok("POST", "/claims", {"task_id": task, "wait_ms": 30_000}, key="ada")["claims"]
    (answer,) = claimed["handover"]["answers"]
    assert (answer["request_id"], answer["agent_id"], answer["result"]) == (sent, "bob", "late")
    served.ok("POST", LEASE.format(task, claimed["token"]) + "/done", {}, key="ada")


def test_deciding_twice_is_deciding_once(served: Served) -> None:
    """A lost answer to `retry` or `dismiss` is settled by repeating; who dismissed is the key, and whom it names."""
    first, after = served.ok(
        "POST",
        "/tasks",
        {"tasks": [{"name": "ends", "role": "none"}, {"name": "follows", "role": "none", "needs": ["ends"]}]},
    )["task_ids"]
    served.ok("POST", f"/tasks/{first}/cancel")
    wait_for_skipped(served, after)
    for _ in range(2):
        seen = served.ok("POST", f"/tasks/{first}/dismiss", {}, key="operator", headers={"Idempotency-Key": "seen"})
        assert seen["dismissed_by"] == "key operator"
    once = {"Idempotency-Key": "again"}
    body = {"with_dependents": True, "by": "mia"}
    made = [served.ok("POST", f"/tasks/{first}/retry", body, key="operator", headers=once) for _ in range(2)]
    assert made[0] == made[1]
    assert len(made[0]["retried"]) == 2
    told = served.ok("GET", f"/events?task_id={first}&kind=task_resubmitted")["events"]
    assert [one["data"]["by"] for one in told] == ["mia (key operator)"]
    assert served.call("POST", f"/tasks/{first}/retry", body, key="operator").json["code"] == "retried"


def wait_for_skipped(served: Served, task: str) -> None:
    until = time.monotonic() + SECONDS
    while served.ok("GET", f"/tasks/{task}")["task"]["state"] != "skipped":
        assert time.monotonic() < until, "it was not skipped"


def test_a_run_of_any_size_is_counted_whole(served: Served) -> None:
    run = served.ok("POST", "/runs", {"name": "wide"})["run_id"]
    tasks = [{"name": f"w{number}", "role": "none", "run": run} for number in range(2_500)]
    served.ok("POST", "/tasks", {"tasks": tasks})
    assert served.ok("GET", f"/runs/{run}")["tasks"] == {"ready": 2_500}
    served.ok("POST", f"/runs/{run}/end")


def test_queues_of_messages_are_shown(pg_url: str, tmp_path: Path) -> None:
    """Where the store is PostgreSQL, its queues are there for a viewer, and for the command line elsewhere."""
    keys = asyncio.run(make_keys(pg_url))
    made = typed(pg_url, "worker", "setup", "jobs")
    assert made.returncode == 0, made
    with started(tmp_path, pg_url, "--listen", "127.0.0.1:0") as (process, url):
        served = Served(pg_url, url, keys, process, tmp_path)
        assert [one["queue"] for one in served.ok("GET", "/queues", key="viewer")["queues"]] == ["jobs"]
        assert served.call("GET", "/queues", key="ada").status == 403
        assert "no process works on it" in typed(url, "worker", "status", ALLSWELL_KEY=keys["viewer"]).stdout
