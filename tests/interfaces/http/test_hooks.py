"""`/hooks/NAME`: signed deliveries become tasks and answers, each once; whatever else is posted becomes nothing."""

import base64
import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from allswell.interfaces.http.webhooks import PREFIX
from tests.interfaces.cli.upkeep import run
from tests.interfaces.http.served import Answer, Served, serving
from tests.interfaces.http.test_api import LEASE, claim, submit

OLD, NEW, OTHER = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2, 3))
SETTINGS = """
[hooks.deploys]
secret_env = ["HOOK_NEW", "HOOK_OLD"]
types = ["deploy.requested"]
task = "deploy {data.service}"
role = "none"
payload = "data"
max_body = 2000

[hooks.answers]
secret_file = "hook.secret"
question = "{data.question}"
option = "{data.option}"
text = "{data.text}"
"""


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("hooked")
    (folder / "allswell.toml").write_text(SETTINGS)
    secret = folder / "hook.secret"
    secret.touch(0o600)
    secret.write_text(f"whsec_{NEW}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOOK_NEW", NEW)
        patch.setenv("HOOK_OLD", f"whsec_{OLD}")
        with serving(folder) as served:
            yield served


def post(
    served: Served,
    hook: str,
    body: object,
    *,
    id_: str = "msg_1",
    secret: str = NEW,
    at: float | None = None,
    more: Mapping[str, str] | None = None,
) -> Answer:
    said = body if isinstance(body, str) else json.dumps(body)
    when = datetime.fromtimestamp(int(time.time() if at is None else at), tz=UTC)
    headers = {
        "webhook-id": id_,
        "webhook-timestamp": str(int(when.timestamp())),
        "webhook-signature": Webhook(secret).sign(id_, when, said),
        **(more or {}),
    }
    return served.call("POST", f"{PREFIX}{hook}", key=None, raw=said.encode(), headers=headers)


def deploy(service: object = "web", kind: str = "deploy.requested") -> dict[str, Any]:
    return {"type": kind, "data": {"service": service, "by": "ci"}}


def test_a_delivery_becomes_a_task_once(hooked: Served) -> None:
    """By the newest secret or the one before; repeated, it is the same task, signed by the hook."""
    made = [post(hooked, "deploys", deploy(), secret=secret).json for secret in (NEW, OLD, NEW)]
    assert made[0] == made[1] == made[2]
    shown = hooked.ok("GET", f"/tasks/{made[0]['task_id']}")
    assert (shown["task"]["name"], shown["task"]["role"]) == ("deploy web", "none")
    assert shown["payload"] == {"service": "web", "by": "ci"}
    (event,) = hooked.ok("GET", f"/events?task_id={made[0]['task_id']}&kind=task_submitted")["events"]
    assert event["data"]["key"] == "hook.deploys"
    other = post(hooked, "deploys", deploy(), id_="msg_2").json
    assert other["task_id"] != made[0]["task_id"]
    assert "ignored" in post(hooked, "deploys", deploy(kind="deploy.done"), id_="msg_3").json


def test_a_delivery_answers_a_question_once(hooked: Served) -> None:
    (task,) = submit(hooked, "asks by hook")
    lease = LEASE.format(task, claim(hooked, task)["token"])
    asked = hooked.ok("POST", f"{lease}/ask", {"text": "May I?", "hold": True}, key="ada")["question_id"]
    body = {"data": {"question": asked, "option": "reply", "text": "yes {data.option}"}}
    for _ in range(2):
        answer = post(hooked, "answers", body, id_="msg_a")
        assert (answer.status, answer.json["question_id"]) == (202, asked)
    told = hooked.ok("GET", f"/questions/{asked}")
    assert (told["answer"], told["answered_by"]) == ("yes {data.option}", "key hook.answers")
    missing = post(hooked, "answers", {"data": {"question": "q_none.1", "option": "reply", "text": ""}}, id_="msg_b")
    assert missing.status == 404


def test_what_is_not_signed_or_does_not_fit_is_refused(hooked: Served) -> None:
    before = hooked.ok("GET", "/tasks?all=true")["tasks"]
    now = time.time()
    for status, code, answer in (
        (401, "bad_signature", post(hooked, "deploys", deploy(), secret=OTHER, id_="x1")),
        (401, "bad_signature", post(hooked, "deploys", deploy(), id_="x2", more={"webhook-id": "x3"})),
        (401, "no_signature", post(hooked, "deploys", deploy(), id_="x4", more={"webhook-signature": ""})),
        (400, "stale_delivery", post(hooked, "deploys", deploy(), id_="x5", at=now - 3_600)),
        (400, "stale_delivery", post(hooked, "deploys", deploy(), id_="x6", at=now + 3_600)),
        (422, "bad_header", post(hooked, "deploys", deploy(), id_="x" * 65)),
        (422, "bad_header", post(hooked, "deploys", deploy(), id_="x15", more={"webhook-timestamp": "9" * 12})),
        (422, "bad_header", post(hooked, "deploys", deploy(), id_="x16", more={"webhook-timestamp": "-1"})),
        (422, "missing_field", post(hooked, "deploys", {"type": "deploy.requested", "data": {}}, id_="x7")),
        (422, "bad_field", post(hooked, "deploys", deploy({"a": 1}), id_="x8")),
        (422, "bad_name", post(hooked, "deploys", deploy("a\u0000b"), id_="x9")),
        (400, "not_json", post(hooked, "deploys", "{", id_="x10")),
        (413, "too_big", post(hooked, "deploys", deploy("y" * 3_000), id_="x11")),
        (401, "bad_signature", post(hooked, "nobody", deploy(), id_="x12")),
        (403, "foreign_origin", post(hooked, "deploys", deploy(), id_="x13", more={"Origin": "https://evil.example"})),
        (421, "foreign_host", post(hooked, "deploys", deploy(), id_="x14", more={"Host": "evil.example"})),
        (405, "bad_method", hooked.call("GET", f"{PREFIX}deploys", key=None)),
    ):
        assert (answer.status, answer.json["code"]) == (status, code), answer.body
    assert hooked.ok("GET", "/tasks?all=true")["tasks"] == before


def test_a_hook_that_cannot_be_is_told_when_the_server_starts(tmp_path: Path) -> None:
    """Mistakes of the settings with their line, a variable that is not set, a secret that others can read."""
    toml = tmp_path / "allswell.toml"
    run("submit", "x", cwd=tmp_path)
    toml.write_text('[hooks.a]\nsecret_env = "NOBODY"\ntask = "x {"\ncolour = "red"\n')
    said = run("serve", cwd=tmp_path)
    assert said.code == 2
    assert "allswell.toml:4: hooks.a has no 'colour'" in said.err
    toml.write_text('[hooks.a]\nsecret_env = "NOBODY"\ntask = "x {"\n')
    checked = run("check", cwd=tmp_path).out
    assert "allswell.toml:3" in checked
    assert "hooks.a.task: a single brace" in checked
    toml.write_text('[hooks.a]\nsecret_env = "NOBODY"\ntask = "x"\n')
    assert "the variable NOBODY is not set" in run("serve", cwd=tmp_path).err
    (tmp_path / "open.secret").write_text(NEW)
    os.chmod(tmp_path / "open.secret", 0o644)  # noqa: PTH101
    toml.write_text('[hooks.a]\nsecret_file = "open.secret"\ntask = "x"\n')
    assert "can be read by others" in run("serve", cwd=tmp_path).err
