"""Money and tokens, from what agents print to what a person reads; in real processes."""

from pathlib import Path

import msgspec
import pytest

from tests.clients.stand_in import install
from tests.interfaces.cli.shell import Shell

FLEET = """\
max_cost_usd = 1
[agents.claude]
command = ["{program}", "{{prompt}}"]
role = "builder"
[roles.builder.retry]
backoff = "10ms"
"""


@pytest.mark.parametrize(
    "stream, code, cost, tokens",
    [
        ("claude-success", 0, 0.75, (1200, 300)),
        ("claude-error", 1, 0.0, (0, 0)),
        ("claude-deferred", 3, 0.02, (900, 20)),
        ("codex-success", 0, None, (1200, 300)),
        ("codex-limit", 1, None, (None, None)),
    ],
)
def test_what_an_agent_reports_is_shown_and_the_rest_is_unknown(
    shell: Shell, tmp_path: Path, stream: str, code: int, cost: float | None, tokens: tuple[int | None, int | None]
) -> None:
    program = install(tmp_path / "bin", stream)
    shell("run", "--name", "night", "--", str(program), code=code)
    shown = shell.json("show", "night")
    (attempt,) = shown["attempts"]
    assert (attempt["cost_usd"], (attempt["tokens_in"], attempt["tokens_out"])) == (cost, tokens)
    assert shown["spent"]["cost_usd"] == cost
    said = shell("show", "night").stdout
    if cost is not None:
        assert f"${cost:.2f}" in said
    elif tokens != (None, None):
        assert "cost       unknown, 1,500 tokens" in said
    else:
        assert "cost" not in said.splitlines()[3]


def test_at_its_limit_an_agent_that_goes_on_is_ended_its_work_kept_and_a_human_asked(
    shell: Shell, tmp_path: Path
) -> None:
    begins = (
        """echo '{"type":"assistant","session_id":"s","message":{"content":[{"type":"text","text":"And now:"}]}}'"""
    )
    program = install(tmp_path / "bin", "claude-success", before="echo half > half", after=f"{begins}; exec sleep 600")
    (shell.folder / "allswell.toml").write_text("max_cost_usd = 0.5\n")
    done = shell("run", "--name", "night", "--", str(program), code=3)
    assert "has reached its cost limit" in done.stderr
    (receipt,) = shell.json("receipts")["receipts"]
    assert (receipt["status"], [one["path"] for one in receipt["changed"]]) == ("costly", ["half"])
    (question,) = shell.json("questions")["questions"]
    assert "has cost $0.75 in its attempt, and may cost $0.50" in question["text"]
    assert "cost_limit" in shell.kinds()
    shell("answer", "night", "increase_cost", "--max-cost-usd", "3")
    assert shell.json("show", "night")["max_cost_usd"] == 3


def test_a_killed_agent_is_priced_by_the_settings_and_ended_at_its_token_limit(shell: Shell, tmp_path: Path) -> None:
    program = install(tmp_path / "bin", "claude-killed", after="exec sleep 600")
    prices = "[prices]\nclaude-sonnet-4-5 = { input = 500_000, output = 250_000 }\n"
    (shell.folder / "allswell.toml").write_text(f"max_tokens = 2\n{prices}")
    done = shell("run", "--name", "night", "--", str(program), code=3)
    assert "has reached its token limit: this attempt $0.75 (estimated), 2 tokens" in " ".join(done.stderr.split())
    (question,) = shell.json("questions")["questions"]
    assert "has used 2 tokens in its attempt, and may use 2 tokens" in question["text"]
    assert "cost       $0.75 (estimated), 2 of at most 2 tokens" in shell("show", "night").stdout
    assert "the task reached its token limit" in " ".join(shell("why", "night").stdout.split())
    assert "token_limit" in shell.kinds()
    shell("answer", "night", "increase_tokens", "--max-tokens", "30")
    assert shell.json("show", "night")["max_tokens"] == 30


def test_a_fleet_is_held_to_the_limits_of_its_tasks_and_of_the_day(shell: Shell, tmp_path: Path) -> None:
    program = install(tmp_path / "bin", "claude-success", after="exit 1")
    (shell.folder / "allswell.toml").write_text(FLEET.format(program=program))
    shell("submit", "paint", "--role", "builder", "--run", "night")
    shell("up", "--drain")
    (question,) = shell.json("questions")["questions"]
    assert "has cost $1.50 in its 2 attempts, and may cost $1.00" in question["text"]
    assert shell.json("runs")["runs"][0]["spent"] == {
        "cost_usd": 1.5,
        "tokens_in": 2400,
        "tokens_out": 600,
        "attempts": 2,
        "estimated": 0,
        "priced": 2,
    }
    assert shell.json("agents")["agents"][0]["spent"]["cost_usd"] == 1.5
    assert "$1.50" in shell("runs").stdout
    assert "$1.50" in shell("agents").stdout
    install(tmp_path / "bin", "claude-success")
    with (shell.folder / "allswell.toml").open("a") as settings:
        settings.write("[roles.writer]\nmax_cost_usd_per_day = 0.5\n[agents.writer]\n")
        settings.write(f'command = ["{program}", "{{prompt}}"]\nrole = "writer"\n')
    for name in ("a", "b"):
        shell("submit", name, "--role", "writer")
    said = shell("up", "--drain", "--role", "writer").stdout
    assert "the role writer has cost $0.75" in said
    because = " ".join(shell("why", "b").stdout.split())
    assert "cannot be claimed: the role writer has reached its cost limit; no task of it is started for" in because
    assert "Read the question" in because
    assert {task["name"]: task["state"] for task in shell.json("tasks", "--all")["tasks"]}["b"] == "ready"
    asked = [one for one in shell.json("questions")["questions"] if one["kind"] == "budget_reached"]
    assert "The role writer has cost $0.75, and may cost $0.50." in asked[0]["text"]
    shell("answer", asked[0]["question_id"], "go_on")
    kinds = [msgspec.json.decode(line)["kind"] for line in shell("events", "--json", "-n", "500").stdout.splitlines()]
    assert {"attempt_cost", "budget_reached", "cost_limit"} <= set(kinds)
