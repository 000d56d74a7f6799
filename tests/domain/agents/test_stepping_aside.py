"""By which words an agent's command becomes another user: what is run on its work becomes that user, too."""

import pytest

from allswell.domain.agents.fleet import ACP_CLIENT, as_agent, stepping_aside


@pytest.mark.parametrize(
    "before",
    [
        "setpriv --reuid=agent --regid=agent --clear-groups --",
        "setpriv --reuid=agent --regid=agent --clear-groups",
        "setpriv --reuid agent --regid agent --init-groups",
        "/usr/bin/setpriv --reuid=1000",
        "sudo -u agent --",
        "sudo -u agent",
        "sudo -n -uagent",
        "sudo -nu agent LANG=C",
        "sudo --user=agent --non-interactive",
        "sudo --user agent -E",
        "runuser -u agent --",
    ],
)
def test_the_words_before_the_command(before: str) -> None:
    aside = tuple(before.split())
    agent = (*aside, "claude", "-p", "--", "do it")
    assert stepping_aside(agent) == aside
    assert as_agent(agent, ("make", "test")) == (*aside, "make", "test")


def test_an_agent_behind_our_acp_client_is_the_user_that_its_own_words_name() -> None:
    aside = ("setpriv", "--reuid=agent", "--")
    started = ("/usr/bin/python3", *ACP_CLIENT, "--session=", "--", *aside, "codex-acp")
    assert as_agent(started, ("make", "test")) == (*aside, "make", "test")


def test_no_prompt_hides_the_user_that_a_command_becomes() -> None:
    """A prompt is a word of the command, and may be any: also the name of our client."""
    aside = ("setpriv", "--reuid=agent", "--")
    for prompt in (ACP_CLIENT[-1], " ".join(ACP_CLIENT)):
        assert as_agent((*aside, "claude", "-p", prompt, "--", "x"), ("make",)) == (*aside, "make")


@pytest.mark.parametrize("agent", [(), ("claude", "-p"), ("sh", "-c", "setpriv --reuid=1 true"), ("env", "sudo", "x")])
def test_who_stays_the_same_user_has_none(agent: tuple[str, ...]) -> None:
    assert stepping_aside(agent) == ()
    assert as_agent(agent, ("make", "test")) == ("make", "test")


def test_whoever_names_a_user_means_that_one() -> None:
    verify = ("sudo", "-u", "auditor", "--", "make", "test")
    assert as_agent(("setpriv", "--reuid=agent", "--", "claude"), verify) == verify
