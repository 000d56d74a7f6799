"""Whether an attempt goes on with its agent's own session, and by which command."""

from __future__ import annotations

import string
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.agents.fleet import ACP_CLIENT, NEVER, AgentSpec, wrong_with_agent
from allswell.domain.agents.handover import NEW_SESSION, WARM, in_words
from allswell.domain.agents.session import (
    FAILURES_MOST,
    LaunchPlace,
    Warmth,
    failures_after,
    has_refused,
    program_of,
    programs_of,
    resumed,
    resuming_command,
    session_of,
    spoilt,
    warm_or_cold,
)
from allswell.domain.ids import AgentId, Millis, TaskId, Token
from allswell.domain.receipts.receipt import AttemptRef, End, Receipt, receipt_of
from allswell.domain.service.retry import ErrorClass
from allswell.domain.task.model import Handover
from allswell.domain.values import QUOTED_IS_DATA
from allswell.settings.first_file import KNOWN

SID = "21257206-6d12-45b0-a42d-b623624c3c02"
HERE = LaunchPlace(("claude",), "/repository", "host", "acme")
_TRIED = AttemptRef(
    task=TaskId("t_1"),
    name="a",
    attempt=1,
    token=Token(1),
    agent=AgentId("claude"),
    run=None,
    argv=("/usr/bin/claude", "-p", "fix it"),
    cwd="/repository",
    began_at=Millis(0),
)
WARM_END = msgspec.structs.replace(
    receipt_of(_TRIED, End.IDLE, "it was silent", 1_000, ()), session=f"claude:{SID}", host="host", account="acme"
)


def kept(**changes: Any) -> Receipt:  # noqa: ANN401 - fields of the receipt
    return msgspec.structs.replace(WARM_END, **changes)


def test_an_attempt_after_a_proven_end_in_the_same_place_is_warm() -> None:
    assert warm_or_cold(kept(warm_failures=1), HERE) == Warmth(SID, failures=1)


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"partial": True}, "it is not proven that nothing of it still runs"),
        ({"proven": False}, "it is not proven that nothing of it still runs"),
        ({"survivors": (7,)}, "it is not proven that nothing of it still runs"),
        ({"no_resume": spoilt(ErrorClass.CONTEXT_OVERFLOW)}, "its context was full"),
        ({"no_resume": spoilt(None, repeats=True)}, "it repeated itself"),
        ({"host": "elsewhere"}, "it ran on another host"),
        ({"host": ""}, "it is not known on which host it ran"),
        ({"account": "other"}, "it used another account"),
        ({"argv": ("codex", "exec")}, "it was run by another program"),
        ({"cwd": "/elsewhere"}, "it worked in another folder"),
        ({"warm_failures": 2}, "2 attempts in a row that went on with it have failed"),
    ],
)
def test_each_doubt_makes_it_cold_and_is_named(changes: dict[str, Any], why: str) -> None:
    assert warm_or_cold(kept(**changes), HERE) == Warmth(why_cold=why)


def test_a_command_of_which_nothing_is_known_is_cold() -> None:
    known = msgspec.structs.replace(HERE, resumes=False)
    assert "not known how its command" in warm_or_cold(kept(), known).why_cold


@given(
    st.builds(
        kept,
        partial=st.booleans(),
        proven=st.booleans(),
        survivors=st.sampled_from([(), (7,)]),
        no_resume=st.sampled_from(["", "its context was full"]),
        host=st.sampled_from(["host", "other", ""]),
        account=st.sampled_from(["acme", "other"]),
        cwd=st.sampled_from(["/repository", "/elsewhere"]),
        warm_failures=st.integers(0, 4),
        status=st.sampled_from(list(End)),
        session=st.one_of(st.none(), st.just(f"claude:{SID}"), st.text(max_size=80).map("claude:{}".format)),
    ),
    st.booleans(),
)
def test_warm_only_without_any_doubt_and_never_both(last: Receipt, resumes: bool) -> None:
    """A session that may still run, or ran elsewhere, is never resumed; and what is resumed is an id."""
    warmth = warm_or_cold(last, msgspec.structs.replace(HERE, resumes=resumes))
    assert not (warmth.session and warmth.why_cold)
    if warmth.session:
        assert (last.partial, last.proven, last.survivors, last.no_resume) == (False, True, (), "")
        assert (last.host, last.account, last.cwd) == (HERE.host, HERE.account, HERE.folder)
        assert (last.warm_failures < FAILURES_MOST, resumes) == (True, True)
        assert set(warmth.session) <= set(string.ascii_letters + string.digits + "_-")
        assert 0 < len(warmth.session) <= 64
        assert warmth.session[0] not in "_-"
    elif session_of(last.session) is not None:
        assert warmth.why_cold, "a session that is not gone on with is told of"
    else:
        assert warmth == Warmth()


@given(st.lists(st.tuples(st.sampled_from(list(End)), st.booleans()), max_size=12))
def test_only_failures_in_a_row_of_warm_attempts_are_counted(ends: list[tuple[End, bool]]) -> None:
    count = 0
    for end, went_on in ends:
        count = failures_after(end, went_on=went_on, before=count)
        if not went_on or end in (End.ASKED, End.INTERRUPTED, End.RELEASED, End.COSTLY, End.UNVERIFIED):
            assert count == 0
    assert count <= len(ends)


def test_an_agent_that_speaks_acp_is_told_its_session_by_its_client() -> None:
    agent = AgentSpec(name="a", acp=("claude-agent-acp", "{folder}"))
    assert resuming_command(agent, "acp", SID) == agent.acp
    assert resuming_command(agent, "claude", SID) is None, "it was another client's"
    assert resuming_command(msgspec.structs.replace(agent, resume=NEVER), "acp", SID) is None
    assert programs_of(agent) == ("claude-agent-acp",)
    client = (
        "/usr/bin/python3",
        *ACP_CLIENT,
        f"--session={SID}",
        "--",
        "sudo",
        "-u",
        "ada",
        "--",
        "/x/codex-acp",
    )
    assert program_of(client) == "codex-acp"


@pytest.mark.parametrize("bad", ["claude:-x", "claude:a b", "claude:", "claude:" + "a" * 65, "x", "", "claude:ä", None])
def test_what_is_no_id_is_no_session(bad: str | None) -> None:
    assert session_of(bad) is None
    assert warm_or_cold(kept(session=bad), HERE) == Warmth()


CLAUDE_CASES = [
    ("claude -p {} --verbose", "claude --resume SID -p MSG --verbose"),
    (
        "claude --verbose -p --output-format stream-json {}",
        "claude --resume SID --verbose -p MSG --output-format stream-json",
    ),
    ("claude {} -p", "claude --resume SID -p MSG"),
    ("claude -p", "claude --resume SID -p MSG"),  # its prompt was piped to it
    ("claude -p --model opus -- {}", "claude --resume SID -p MSG --model opus"),
    (
        "claude -p {} --allowedTools Bash Edit --model=x",
        "claude --resume SID -p MSG --allowedTools Bash Edit --model=x",
    ),
    ("claude -p {} --session-id OLD", "claude --resume SID -p MSG"),
    ("claude --resume OLD -p {}", "claude --resume SID -p MSG"),
    ("claude -c -p {}", "claude --resume SID -p MSG"),
    ("sudo -u agent claude -p {}", "sudo -u agent claude --resume SID -p MSG"),
    ("claude {}", None),  # somebody sits before it
    ("claude -p {} --no-session-persistence", None),
    ("claude -p {} --new-option value", None),  # is that the prompt?
    ("claude -p --input-format stream-json", None),
    ("claude -p {} more", None),
    ("npx claude -p {}", None),
    ("sh -c claude", None),
]
CODEX_CASES = [
    ("codex exec --json {}", "codex exec --json resume SID MSG"),
    ("codex exec {} --json -s read-only", "codex exec --json -s read-only resume SID MSG"),
    ("codex -c a=b exec --json --cd /x {}", "codex -c a=b exec --json --cd /x resume SID MSG"),
    ("codex exec --json -i a.png -m gpt-5 {}", "codex exec --json -m gpt-5 resume SID MSG"),
    ("codex exec --json resume OLD {}", "codex exec --json resume SID MSG"),
    ("codex exec --json -", "codex exec --json resume SID MSG"),
    ("codex exec --ephemeral {}", None),
    ("codex exec review", None),
    ("codex review {}", None),
    ("codex {}", None),
]


@pytest.mark.parametrize(
    "dialect, typed, goes_on",
    [("claude", *case) for case in CLAUDE_CASES] + [("codex", *case) for case in CODEX_CASES],
)
def test_the_command_that_goes_on(dialect: str, typed: str, goes_on: str | None) -> None:
    argv = [word.replace("{}", "the whole prompt") for word in typed.split()]
    command = resumed(argv, dialect, SID, "go on")
    wanted = None if goes_on is None else [word.replace("SID", SID).replace("MSG", "go on") for word in goes_on.split()]
    assert command == (None if wanted is None else tuple(wanted))


def test_only_its_own_client_and_a_real_id_are_resumed() -> None:
    assert resumed(["claude", "-p", "x"], "codex", SID, "go on") is None
    assert resumed(["codex", "exec", "x"], "codex", "a-name-of-another-thread", "go on") is None


@given(
    st.sampled_from(["claude", "codex"]),
    st.lists(
        st.sampled_from(
            ["-p", "--print", "--verbose", "exec", "e", "--", "-", "resume", "x", "-m", "--json", "-c", "-m=y"]
        ),
        max_size=9,
    ),
)
def test_a_command_that_goes_on_names_the_session_and_the_message_once(program: str, words: list[str]) -> None:
    command = resumed([program, *words], program, SID, "MSG")
    if command is not None:
        assert command[0] == program
        assert [command.count(SID), command.count("MSG")] == [1, 1]
        assert set(command) <= {program, "--resume", "resume", SID, "MSG", *words}


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_what_init_writes_goes_on(name: str) -> None:
    known = next(one for one in KNOWN if one.name == name)
    place = len(known.command) if name == "claude" else known.command.index("{prompt}")
    words = (*known.command[:place], *known.tools, *known.command[place:])
    command = resuming_command(AgentSpec(name=name, command=words), name, SID)
    assert command is not None
    assert {*known.command, *known.tools} <= {*command}


def test_an_agent_may_say_itself_how_it_goes_on() -> None:
    claude = AgentSpec(name="a", command=("claude", "-p", "{prompt}"))
    assert resuming_command(claude, "claude", SID) == ("claude", "--resume", SID, "-p", "{prompt}")
    own = AgentSpec(name="a", command=("mine", "{prompt}"), resume=("mine", "--on", "{session}", "{prompt}"))
    assert resuming_command(own, "claude", "s1") == own.resume
    place = AgentSpec(name="a", command=("mine", "--on={session}", "{prompt}"))
    assert resuming_command(place, "claude", "s1") == place.command
    never = AgentSpec(name="a", command=claude.command, resume=("off",))
    assert resuming_command(never, "claude", SID) is None
    assert wrong_with_agent(own) == wrong_with_agent(never) == wrong_with_agent(place) == []
    ((field, text),) = wrong_with_agent(AgentSpec(command=("mine", "{prompt}"), resume=("mine", "{prompt}")))
    assert (field, "{session}" in text) == ("resume", True)
    ((field, _),) = wrong_with_agent(AgentSpec(function="a:b", resume=("mine", "{session}")))
    assert field == "resume"


@pytest.mark.parametrize(
    "program, printed, began, refused",
    [
        ("claude", '{"errors":["No conversation found with session ID: x"]}', True, True),
        ("codex", "Error: thread/resume: thread/resume failed: no rollout found for thread id x", False, True),
        ("claude", "API Error: 401", True, False),
        ("codex", "", False, False),
        ("mine", "", False, True),
        ("mine", "", True, False),
    ],
)
def test_a_client_that_refuses_is_told_from_one_that_fails(
    program: str,
    printed: str,
    began: bool,
    refused: bool,
) -> None:
    assert has_refused(program, 1, 2_000, printed, began=began) is refused
    assert not has_refused(program, 0, 2_000, printed, began=began)
    assert not has_refused(program, 1, 600_000, printed, began=began)


def test_the_handover_says_which_of_both_it_is() -> None:
    handover = Handover("agent_idle", AgentId("claude"), note="wrote the lexer")
    warm = in_words(2, handover, ["use tabs"], warmth=Warmth(SID))
    cold = in_words(2, handover, ["use tabs"], warmth=Warmth(why_cold="its context was full"))
    assert warm.startswith(WARM)
    assert cold.startswith(f"{NEW_SESSION}: its context was full.")
    for told in (warm, cold):
        assert "it gave no sign of progress for too long" in told
        assert "- use tabs" in told
        assert "> wrote the lexer" in told
        assert QUOTED_IS_DATA in told
