"""How a command is meant to be run, as far as its words tell."""

import pytest

from allswell.domain.values import CommandManner, manner_of
from allswell.settings.first_file import KNOWN, KnownAgent


@pytest.mark.parametrize(
    "line, manner",
    [
        ("claude", CommandManner.INTERACTIVE),
        ("/opt/bin/claude --model opus", CommandManner.INTERACTIVE),
        ("claude --resume -p hello", CommandManner.ONE_PROMPT),
        ("claude --print hello", CommandManner.ONE_PROMPT),
        ("codex", CommandManner.INTERACTIVE),
        ("codex --sandbox read-only exec --json hello", CommandManner.ONE_PROMPT),
        ("codex execute", CommandManner.INTERACTIVE),
        ("gemini --prompt=hello", CommandManner.ONE_PROMPT),
        ("gemini -i hello", CommandManner.INTERACTIVE),
        ("opencode", CommandManner.INTERACTIVE),
        ("opencode run hello", CommandManner.ONE_PROMPT),
        ("make -p", CommandManner.UNKNOWN),
        ("", CommandManner.UNKNOWN),
    ],
)
def test_an_agent_is_interactive_unless_it_is_given_its_one_prompt(line: str, manner: CommandManner) -> None:
    assert manner_of(line.split()) is manner


@pytest.mark.parametrize("agent", KNOWN, ids=lambda agent: agent.name)
def test_agents_of_a_fleet_are_run_for_one_prompt(agent: KnownAgent) -> None:
    assert manner_of(agent.command) is CommandManner.ONE_PROMPT
