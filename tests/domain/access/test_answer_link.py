"""Links that answer a question: what they stand for, which options have one, and how long they hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allswell.domain.access.answer_link import (
    BY_LINK,
    TOKEN_MOST,
    AnswerLink,
    https_origin,
    option_of_link,
    options_by_link,
    read_token,
    signed,
)
from allswell.domain.access.key import Right, new_key
from allswell.domain.agents.evidence import AGENT_REPEATS
from allswell.domain.ids import Millis, QuestionId, RunId, TaskId
from allswell.domain.lease.cost import BUDGET_OPTIONS
from allswell.domain.question import (
    BY_AGENT,
    CALL_OPTIONS,
    DESTRUCTIVE,
    ESCALATION_OPTIONS,
    REPEATED_TIMEOUT_OPTIONS,
    REPEATS_OPTIONS,
    VERIFICATION_OPTIONS,
    AnswerAction,
    Option,
    OptionInput,
    Question,
    takes,
)
from allswell.errors import Refused

NOW = Millis(1_700_000_000_000)
SECRET = "s" * 43
LINK = AnswerLink(QuestionId("q_a.1"), "left", Millis(NOW + 1_000), "phone", "warning.0")
LEFT, SKIP = Option("left", "Turn left", AnswerAction.RETRY), Option("skip", "Skip", AnswerAction.SKIP)


def question(*options: Option, kind: str = BY_AGENT) -> Question:
    return Question(QuestionId("q_a.1"), TaskId("t_a"), RunId("r_a"), kind, "Which way?", options, NOW, "ada")


TEXT = st.text(max_size=40)


@given(TEXT, TEXT, TEXT, TEXT, st.integers(0, 2**60))
def test_a_token_is_read_as_it_was_signed(asked: str, option: str, sink: str, route: str, at: int) -> None:
    link = AnswerLink(QuestionId(asked), option, Millis(at), sink, route)
    token = signed(link, SECRET)
    assert token is not None
    assert token.isascii()
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert read_token(token, SECRET) == link
    assert read_token(token, "another") is None


@given(st.data())
def test_a_token_of_which_any_bit_was_changed_is_refused(data: st.DataObject) -> None:
    token = signed(LINK, SECRET) or ""
    place, bit = data.draw(st.integers(0, len(token) - 1)), data.draw(st.integers(0, 6))
    changed = token[:place] + chr(ord(token[place]) ^ (1 << bit)) + token[place + 1 :]
    assert read_token(changed, SECRET) is None
    shorter = data.draw(st.integers(0, len(token) - 1))
    assert read_token(token[:shorter], SECRET) is None
    assert read_token(token + data.draw(st.text(min_size=1, max_size=5)), SECRET) is None


@given(st.text() | st.text(alphabet="ABCabc019-_=+/", max_size=200))
def test_what_nobody_has_signed_is_no_token(text: str) -> None:
    assert read_token(text, SECRET) is None


def test_what_would_be_too_long_has_no_link() -> None:
    assert signed(replace(LINK, option="x" * TOKEN_MOST), SECRET) is None
    assert read_token("A" * (TOKEN_MOST + 1), SECRET) is None


def test_no_link_allows_accepts_or_ends_or_changes_limits_or_cost() -> None:
    barred = {
        *(AnswerAction.ALLOW, AnswerAction.ACCEPT, AnswerAction.SKIP, AnswerAction.SPLIT, AnswerAction.END_AND_RETRY),
        *(act for act in AnswerAction if act.startswith("increase_")),
        *(AnswerAction.CANCEL_MESSAGE, AnswerAction.COMPLETE_MESSAGE),
    }
    assert set(AnswerAction) - BY_LINK == barred, "a new act is decided about here"
    assert not DESTRUCTIVE & BY_LINK
    assert {takes(act) for act in BY_LINK} == {OptionInput.WORDS, OptionInput.REMARK}
    every = [Option(act, "Harmless", act) for act in AnswerAction]
    assert not {option.act for option in options_by_link(question(*every))} & barred


@pytest.mark.parametrize(
    "kind, options, keys",
    [
        ("agent", (LEFT, SKIP), ["left"]),
        ("agent", CALL_OPTIONS, ["reject_once"]),
        ("repeated_timeout", REPEATED_TIMEOUT_OPTIONS, ["clarify"]),
        ("escalation", ESCALATION_OPTIONS, ["retry", "clarify"]),
        ("verification", VERIFICATION_OPTIONS, ["retry", "clarify"]),
        (AGENT_REPEATS, REPEATS_OPTIONS, []),
        ("budget_reached", BUDGET_OPTIONS, ["wait"]),
    ],
)
def test_which_options_of_the_watchs_own_questions_have_a_link(
    kind: str, options: tuple[Option, ...], keys: list[str]
) -> None:
    assert [option.key for option in options_by_link(question(*options, kind=kind))] == keys


def test_a_link_offers_its_own_option_of_its_own_open_question_until_it_expires() -> None:
    asked = question(LEFT, SKIP)
    assert option_of_link(LINK, asked, NOW) == LEFT
    assert option_of_link(LINK, asked, Millis(NOW + 1_000)) is None
    assert option_of_link(LINK, None, NOW) is None
    assert option_of_link(LINK, replace(asked, closed_at=NOW), NOW) is None
    assert option_of_link(LINK, replace(asked, id=QuestionId("q_b.1")), NOW) is None
    assert option_of_link(replace(LINK, option="skip"), asked, NOW) is None, "an agent's program may offer any act"
    assert option_of_link(replace(LINK, option="right"), asked, NOW) is None


def test_a_key_cannot_have_the_name_under_which_links_sign() -> None:
    assert (LINK.key.name, LINK.key.rights, LINK.by) == ("link.phone", (Right.OPERATOR,), "a link sent to warning.0")
    with pytest.raises(Refused, match="cannot name a key"):
        new_key("link.phone", SECRET, ["operator"], NOW)


@pytest.mark.parametrize(
    "url, origin",
    [
        ("https://watch.example.org", "https://watch.example.org"),
        (" https://Watch.Example.org:443/ ", "https://watch.example.org"),
        ("https://watch.example.org:8420", "https://watch.example.org:8420"),
        ("https://[2001:db8::1]:8420", "https://[2001:db8::1]:8420"),
        ("https://[2001:db8::1]", "https://[2001:db8::1]"),
        *[(url, None) for url in ("", "http://watch.example.org", "watch.example.org", "https://", "https://a:x")],
        *[(url, None) for url in ("https://a/b", "https://u@a", "https://a?b", "https://a#b", "https://a:99999")],
        *[(url, None) for url in ("https://a b", 'https://a"b', "https://a\\b", "javascript://a")],
    ],
)
def test_links_begin_with_a_whole_host_over_tls(url: str, origin: str | None) -> None:
    assert https_origin(url) == origin
