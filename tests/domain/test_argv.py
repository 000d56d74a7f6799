"""How a command is meant to be run, as far as its words tell."""

import pytest

from allswell.domain.values import Manner, manner_of
from allswell.settings.first_file import KNOWN, KnownAgent


@pytest.mark.parametrize(
    "line, manner",
    [
        ("claude", Manner.INTERACTIVE),
        ("/opt/bin/claude --model opus", Manner.INTERACTIVE),
        ("claude --resume -p hello", Manner.ONE_PROMPT),
        ("claude --print hello", Manner.ONE_PROMPT),
        ("codex", Manner.INTERACTIVE),
        ("codex --sandbox read-only exec --json hello", Manner.ONE_PROMPT),
        ("codex execute", Manner.INTERACTIVE),
        ("gemini --prompt=hello", Manner.ONE_PROMPT),
        ("gemini -i hello", Manner.INTERACTIVE),
        ("opencode", Manner.INTERACTIVE),
        ("opencode run hello", Manner.ONE_PROMPT),
        ("make -p", Manner.UNKNOWN),
        ("", Manner.UNKNOWN),
    ],
)
def test_an_agent_is_interactive_unless_it_is_given_its_one_prompt(line: str, manner: Manner) -> None:
    assert manner_of(line.split()) is manner


@pytest.mark.parametrize("agent", KNOWN, ids=lambda agent: agent.name)
def test_agents_of_a_fleet_are_run_for_one_prompt(agent: KnownAgent) -> None:
    assert manner_of(agent.command) is Manner.ONE_PROMPT
