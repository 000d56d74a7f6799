"""Agents in `allswell.toml`: read strictly, and every mistake is told with its line and what was meant."""

from importlib import metadata
from pathlib import Path

import pytest

from allswell.domain.agents.fleet import PROMPT, fill, holders
from allswell.errors import Refused
from allswell.settings import load, look
from allswell.settings.schema import schema

GOOD = """
[roles.critic]
agent_timeout = "8m"

[agents.claude]
command = ["claude", "-p", "{prompt}", "--output-format", "stream-json", "--verbose"]
role = "builder"
concurrency = 3
account = "anthropic"
pass_env = ["ANTHROPIC_*"]
env = { LOG = "info", WHERE = "{folder}" }
worktree = true
idle = "5m"
grace = 20_000

[agents.reviewer]
function = "crew.review:look"
role = "critic"

[agents.far]
remote = true
concurrency = 5

[usage]
command = ["usage.sh"]
every = "30s"

[compaction]
function = "crew.memory:compact"
"""


def written(folder: Path, text: str) -> Path:
    (folder / "allswell.toml").write_text(text)
    return folder


def test_three_kinds_of_agents(tmp_path: Path) -> None:
    fleet = load(written(tmp_path, GOOD), environ={}).fleet
    claude, reviewer, far = fleet.agents["claude"], fleet.agents["reviewer"], fleet.agents["far"]
    assert (claude.kind, claude.role, claude.concurrency, claude.idle, claude.grace) == (
        "command",
        "builder",
        3,
        300_000,
        20_000,
    )
    assert claude.cwd == "."
    assert claude.prompt == PROMPT
    assert claude.limit_of() == "anthropic"
    assert (reviewer.kind, reviewer.roles(), reviewer.limit_of()) == ("function", ("critic",), "reviewer")
    assert (far.kind, far.roles()) == ("remote", None)
    assert (fleet.usage.every, fleet.usage.timeout) == (30_000, 10_000)
    assert holders(claude, "main") == ["claude.1", "claude.2", "claude.3"]
    assert holders(reviewer, "night") == ["night/reviewer"]


def test_an_agent_that_speaks_acp_is_a_command_and_needs_no_prompt_among_its_words(tmp_path: Path) -> None:
    text = '[agents.a]\nacp = ["claude-agent-acp", "{folder}"]\nresume = ["off"]\n'
    agent = load(written(tmp_path, text), environ={}).fleet.agents["a"]
    assert (agent.kind, agent.argv, agent.command) == ("command", ("claude-agent-acp", "{folder}"), ())


def test_where_the_library_is_missing_it_is_said_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    (problem,) = look(written(tmp_path, '[agents.a]\nacp = ["x"]\n'), environ={}).problems
    assert problem.says == "agents.a.acp: this takes the extra acp: pip install 'allswell[acp]'"
    assert problem.part == "agents", "what needs no agents goes on"
    assert look(written(tmp_path, '[agents.a]\ncommand = ["x", "{prompt}"]\n'), environ={}).problems == ()


def test_without_agents_there_are_none(tmp_path: Path) -> None:
    assert load(tmp_path, environ={}).fleet.agents == {}


def test_a_relative_folder_counts_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    written(tmp_path, '[agents.a]\ncommand = ["x", "{prompt}"]\ncwd = "src"\n')
    assert load(tmp_path / "deep", environ={}).fleet.agents["a"].cwd == str(tmp_path / "src")


@pytest.mark.parametrize(
    "text, says, at",
    [
        ('[agents.a]\ncomand = ["x", "{prompt}"]', "agents.a has no 'comand'; did you mean 'command'?", 2),
        ('[agents.a]\ncommand = "x {prompt}"', "agents.a.command must be a list of words", 2),
        ('[agents.a]\ncommand = ["x", "{promt}"]', "nothing is called {promt}; did you mean {prompt}?", 2),
        ('[agents.a]\ncommand = ["x"]', "it contains neither {prompt} nor {prompt_file}", 2),
        ('[agents.a]\nrole = "x"', "a function or remote = true, and this one has none of these", 1),
        ('[agents.a]\nremote = true\nfunction = "a:b"', "this one has function and remote: which of them?", 1),
        ('[agents.a]\nacp = ["x"]\ncommand = ["x", "{prompt}"]', "this one has command and acp: which of them?", 1),
        ('[agents.a]\nacp = "x"', "agents.a.acp must be a list of words", 2),
        ('[agents.a]\nacp = ["x", "{promt}"]', "nothing is called {promt}", 2),
        ('[agents.a]\nacp = ["x"]\nresume = ["x", "{session}"]', "by its protocol: leave it out, or", 3),
        ('[agents.a]\nacp = ["x"]\nhears = "stdin"', "hears its protocol on its input", 3),
        ('[agents.a]\nacp = ["x"]\ndefer = ["Bash"]', "that takes a command that begins with claude", 3),
        ('[agents.a]\nfunction = "a.b"', "is not written module:name", 2),
        ('[agents.a]\nfunction = "a:b"\nconcurrency = 0', "concurrency (0) must be 1 to 1000", 3),
        ('[agents.a]\nfunction = "a:b"\nconcurrency = "two"', "agents.a.concurrency must be a whole number", 3),
        ('[agents.a]\nfunction = "a:b"\nidle = "banana"', "banana", 3),
        ('[agents.a]\nfunction = "a:b"\nrole = "critc"', "there is no role 'critc'; did you mean 'critic'?", 3),
        ('[agents."a/b"]\nremote = true', "an agent's name has no slash", 1),
        ('[agents.a]\nremote = true\nhears = "smoke"', 'must be "socket", "stdin" or "file"', 3),
        ('[agents.a]\ncommand = ["x", "{prompt}"]\nhears = "file"', "its command does not contain {orders_file}", 3),
        ("agents = 3", "agents must be tables such as [agents.claude]", 1),
        ("[agent.a]\nremote = true", "no such setting: 'agent'; did you mean agents?", 1),
        ('[usage]\ncommand = ["x"]\nfunction = "a:b"', "usage has a command and a function; which of them?", 3),
        ('[usage]\nevry = "1m"', "usage has no 'evry'; did you mean 'every'?", 2),
        ('pause_on_question = "never"', 'must be "task", "run" or "all"', 1),
    ],
)
def test_mistakes(tmp_path: Path, text: str, says: str, at: int) -> None:
    with pytest.raises(Refused) as told:
        _ = load(written(tmp_path, text), environ={}).fleet
    assert says in str(told.value)
    assert f"allswell.toml:{at}: " in str(told.value)


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    text = '[agents.a]\ncomand = ["x"]\n[agents.b]\nfunction = "b"\n[agents.c]\nremote = 1\n'
    problems = look(written(tmp_path, text), environ={}).problems
    assert len(problems) == 3


def test_what_is_filled_in_is_never_read_again() -> None:
    assert fill("{name}: {payload} {x}", {"name": "{payload}", "payload": "{task}"}) == "{payload}: {task} {x}"


def test_editors_know_the_tables() -> None:
    properties = schema()["properties"]
    assert properties["agents"]["additionalProperties"]["properties"]["command"]["type"] == "array"
    assert properties["usage"]["properties"]["every"]
    assert properties["pause_on_question"]["enum"] == ["task", "run", "all"]
