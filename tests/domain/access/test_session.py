"""Links and sessions of browsers: what holds, for how long, and for whom."""

import pytest

from allswell.domain.access.key import (
    LINK_LASTS,
    LINK_MARK,
    SESSION_LASTS,
    SESSION_MARK,
    SESSIONS_MOST,
    Key,
    Right,
    Sessions,
    check_csrf,
    check_session,
    closed,
    csrf_of,
    exchanged,
    new_key,
    opened,
    secret_of,
    session_parts_of,
    shown,
    with_link,
)
from allswell.domain.ids import Millis
from allswell.errors import Refused

NOW = Millis(1_700_000_000_000)
LINK, MINE = secret_of(b"l" * 32), secret_of(b"m" * 32)


def key(secret: str = "k") -> Key:  # noqa: S107 - of nobody
    return new_key("mia", secret, [Right.OPERATOR], NOW)


def code_of(sessions: Sessions, link: str = LINK, now: int = NOW) -> str:
    with pytest.raises(Refused) as refused:
        exchanged(sessions, link, MINE, key(), Millis(now))
    return refused.value.code


def test_a_link_opens_one_session_and_works_once() -> None:
    made = with_link(Sessions(), LINK, NOW)
    used = exchanged(made, LINK, MINE, key(), NOW)
    assert check_session(used, MINE, key(), NOW).expires_at == NOW + SESSION_LASTS
    assert code_of(used) == "link_used"


def test_a_link_is_short_lived_and_gives_way_to_a_newer_one() -> None:
    made = with_link(Sessions(), LINK, NOW)
    exchanged(made, LINK, MINE, key(), Millis(NOW + LINK_LASTS - 1))
    assert code_of(made, now=NOW + LINK_LASTS) == "link_expired"
    assert code_of(with_link(made, secret_of(b"n" * 32), NOW)) == "bad_link"
    assert code_of(Sessions()) == "bad_link"
    assert code_of(made, link="") == "bad_link"


@pytest.mark.parametrize(
    "secret, of, at",
    [(secret_of(b"x" * 32), "k", 0), (MINE, "made anew", 0), (MINE, "k", SESSION_LASTS)],
    ids=["another's", "of a key that was made anew", "expired"],
)
def test_a_session_holds_for_its_secret_its_very_key_and_its_time(secret: str, of: str, at: int) -> None:
    sessions = opened(Sessions(), MINE, key(), NOW)
    check_session(sessions, MINE, key(), Millis(NOW + SESSION_LASTS - 1))
    with pytest.raises(Refused, match="not logged in any more"):
        check_session(sessions, secret, key(of), Millis(NOW + at))


def test_logging_out_ends_that_session_alone_and_there_are_never_too_many() -> None:
    secrets = [secret_of(bytes([number]) * 32) for number in range(SESSIONS_MOST + 5)]
    sessions = Sessions()
    for secret in secrets:
        sessions = opened(sessions, secret, key(), NOW)
    assert len(sessions.open) == SESSIONS_MOST
    after = closed(sessions, secrets[-1])
    check_session(after, secrets[-2], key(), NOW)
    with pytest.raises(Refused):
        check_session(after, secrets[-1], key(), NOW)
    later = opened(after, MINE, key(), Millis(NOW + SESSION_LASTS))
    assert len(later.open) == 1


def test_nothing_of_a_secret_is_kept_and_forms_have_a_token_of_their_session() -> None:
    kept = repr(exchanged(with_link(Sessions(), LINK, NOW), LINK, MINE, key(), NOW))
    assert MINE not in kept
    assert LINK not in kept
    check_csrf(MINE, csrf_of(MINE))
    for wrong in ("", csrf_of(LINK), "ü" * 64):
        with pytest.raises(Refused, match="not made by this page"):
            check_csrf(MINE, wrong)


@pytest.mark.parametrize(
    "text", ["", "aws_", f"awk_mia_{MINE}", f"awl_mia_{MINE}", f"aws_MIA_{MINE}", f"aws_mia_{MINE}\n"]
)
def test_what_is_no_session_is_not_taken_for_one(text: str) -> None:
    assert session_parts_of(SESSION_MARK, shown(SESSION_MARK, "mia", MINE)) == ("mia", MINE)
    assert session_parts_of(SESSION_MARK, text) is None
    assert session_parts_of(LINK_MARK, shown(LINK_MARK, "a.b-c", MINE)) == ("a.b-c", MINE)
