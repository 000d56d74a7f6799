"""Real clients whose provider refuses them: a login, a rate limit, a usage limit. A column of the table each.

`make clients` runs this, and writes the table of docs/agents.md of it.
"""

from __future__ import annotations

import time
from datetime import datetime

import msgspec
import pytest

from allswell.testing.provider import AnyAct, Fail, Reply, rate_limited, subscription_limit, unauthorized, usage_limit
from tests.clients.roster import ENDED, ClientFleet, SceneProvider, fleet, provider

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
__all__ = ["fleet", "provider"]
HOUR = 3_600


def test_a_refused_login(fleet: ClientFleet, provider: SceneProvider) -> None:
    provider.always(unauthorized())
    client, patient = fleet.client, ""
    if client.name == "claude-agent-acp":  # it tells nothing of its tries, which take minutes
        env = client.env
        client = msgspec.structs.replace(client, env=lambda made: {**env(made), "CLAUDE_CODE_MAX_RETRIES": "1"})
        patient = "; before that its tries take minutes, and it reports none of them"
    fleet.works(provider, client=client, idle="80s")
    question = fleet.question()
    outcomes = [one["outcome"] for one in fleet.shown()["attempts"]]
    spent = "no attempt is used up" if not any(one.startswith("failed") for one in outcomes) else "one attempt failed"
    assert "401" in question["text"] or "login" in question["text"], question
    about = "the account" if question["text"].startswith("Account one: ") else "the task"
    fleet.cell("401", f"one question for {about}, which says that the login is refused; {spent}{patient}")


def test_a_rate_limit(fleet: ClientFleet, provider: SceneProvider) -> None:
    provider.script(*[rate_limited("3")] * 3, Reply("Hello."))
    fleet.works(provider, "--retries", "0", top='[retry]\nretry_after_default = "5s"', idle="80s")
    seen: set[str] = set()

    def ended() -> bool:
        seen.update(f"{one['health']}: {one['evidence']}" for one in fleet.agents().values())
        return fleet.state() in ("done", "failed") or bool(fleet.questions())

    fleet.until(ended)
    tries = sorted(one.partition(": ")[2] for one in seen if one.startswith("waiting for the provider"))
    shown = f"shown as “waiting for the provider: {tries[0]}”" if tries else "not shown: it does not report its tries"
    outcome = fleet.shown()["attempts"][-1]["outcome"] if fleet.shown()["attempts"] else fleet.state()
    fleet.cell("429", f"{shown}; {ENDS.get(outcome, outcome)}")


ENDS = {
    "done": "done once its client has waited it out",
    "parked": "then its account is parked, and no attempt is used up",
}


def limit_of(fleet: ClientFleet, resets: int) -> AnyAct:
    """What its API says where a plan is used up until then."""
    name = fleet.client.name
    if name.startswith("claude"):
        return subscription_limit(resets)
    if name.startswith("codex"):
        return usage_limit(resets)
    if name == "gemini":
        violation = {
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
            "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
        }
        details = [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{HOUR}s"},
        ]
        return Fail(429, message="You exceeded your current quota. Please retry in 1h.", more={"details": details})
    return Fail(429, "rate_limit_error", "Usage limit reached.", {"retry-after": str(HOUR)})


def test_a_usage_limit(fleet: ClientFleet, provider: SceneProvider) -> None:
    resets = int(time.time()) + HOUR
    provider.always(limit_of(fleet, resets))
    client = fleet.client
    if client.name.startswith("claude"):  # with a subscription its client reports limits in events of their own
        login = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-k"}
        env = client.env
        client = msgspec.structs.replace(
            client, env=lambda made: {**{n: v for n, v in env(made).items() if n != "ANTHROPIC_API_KEY"}, **login}
        )
    fleet.works(provider, client=client, idle="40s", top="timeout_escalation = 1")
    fleet.until(lambda: fleet.events("usage_limit") or fleet.questions() or fleet.state() in ENDED)
    limits = fleet.events("usage_limit")
    if limits:
        fleet.until(lambda: fleet.shown()["attempts"])
        off = datetime.fromisoformat(limits[0]["data"]["until_at"]).timestamp() - resets
        named = "the reset that it named" if abs(off) < 90 else "a pause, as it names no reset"
        fleet.cell("usage limit", f"its account is parked until {named}; no attempt is used up")
        return
    (attempt, *_) = fleet.shown()["attempts"]
    asked = "; a human is asked" if fleet.questions() else ""
    how = {"agent_idle": "it waits for the reset by itself and prints nothing: ended as idle"}
    fleet.cell("usage limit", f"{how.get(attempt['outcome'], attempt['outcome'])}{asked}")
