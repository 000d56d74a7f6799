"""Sessions that humans have started: what is kept of them, and what is told once."""

from msgspec.structs import replace

from allswell.domain.agents.human_session import (
    FOLDER_MOST,
    SESSIONS_MOST,
    TEXT_MOST,
    Change,
    HumanSession,
    SessionReport,
    bounded,
    kept,
    read_sessions,
    reported,
)
from allswell.domain.ids import Millis

ONE = HumanSession("claude", "7f99863e-139c", "/home/grace/w", "h", 4242, "b", "n", 7, Millis(1_000), Millis(1_000))
Sessions = tuple[HumanSession, ...]


def after(before: Sessions, change: Change, at: int, waits: str = "") -> tuple[Sessions, str | None]:
    report = SessionReport(change, replace(ONE, began_at=Millis(at), heard_at=Millis(at), waits=waits), "idle_prompt")
    sessions, events = reported(before, report)
    return sessions, ", ".join(event.kind for event in events) or None


def test_that_it_waits_is_told_once_until_it_has_gone_on() -> None:
    sessions, told = after((), "begins", 1_000)
    assert (sessions, told) == ((ONE,), "human_session_began")
    sessions, told = after(sessions, "waits", 2_000, "Claude needs your permission")
    assert told == "agent_waits"
    assert (sessions[0].waits, sessions[0].began_at, sessions[0].heard_at) == (
        "Claude needs your permission",
        1_000,
        2_000,
    )
    sessions, told = after(sessions, "waits", 3_000, "Claude is waiting for your input")
    assert (sessions[0].waits, told) == ("Claude is waiting for your input", None)
    sessions, told = after(sessions, "begins", 4_000)
    assert (sessions[0].waits, told) == ("Claude is waiting for your input", None), "it was compacted, and still waits"
    sessions, told = after(sessions, "goes_on", 5_000)
    assert (sessions[0].waits, told) == ("", None)
    assert after(sessions, "waits", 6_000, "again")[1] == "agent_waits"
    assert after(sessions, "ends", 7_000) == ((), "human_session_ended")
    assert after((), "ends", 8_000) == ((), None)


def test_one_that_was_not_heard_of_before_is_listed() -> None:
    sessions, told = after((), "waits", 1_000, "permission")
    assert told == "human_session_began, agent_waits"
    assert after(sessions, "begins", 1_001)[1] is None, "the report that it begins was slower"
    assert after((), "goes_on", 1_000)[1] == "human_session_began"


def test_reports_that_overtake_each_other_leave_what_was_said_last() -> None:
    """Each comes from a process of its own: on a busy machine a later one is quicker."""

    def said(before: Sessions, change: Change, tick: int, waits: str = "") -> tuple[Sessions, str | None]:
        session = replace(ONE, said_at=tick, waits=waits)
        sessions, events = reported(before, SessionReport(change, session, "its_kind" if waits else ""))
        return sessions, ", ".join(f"{event.kind} {event.data.get('kind')}" for event in events) or None

    begun, _ = said((), "begins", 10)
    asks, _ = said(begun, "waits", 20, "permission")
    waits, told = said(asks, "waits", 40, "your next message")
    assert told is None, "it is not known yet that it has gone on"
    late, told = said(waits, "goes_on", 30)
    assert (late[0].waits, told) == ("your next message", "agent_waits its_kind")
    assert said(late, "goes_on", 35)[1] is None
    gone_on, told = said(late, "goes_on", 50)
    assert (gone_on[0].waits, told) == ("", None)
    late, told = said(gone_on, "waits", 45, "permission")
    assert (late, told) == (gone_on, None), "it has gone on since"
    restarted = replace(ONE, boot_id="c", said_at=5, waits="again")
    assert reported(gone_on, SessionReport("waits", restarted))[0][0].waits == "again", "ticks of another start"
    assert said(gone_on, "waits", 0, "again")[0][0].waits == "again", "it is not known when it was said"


def test_what_is_kept_is_bounded_and_comes_back_as_it_was() -> None:
    many: Sessions = ()
    for number in range(SESSIONS_MOST + 5):
        many, _ = reported(many, SessionReport("begins", replace(ONE, session=f"s{number}")))
    assert len(many) == SESSIONS_MOST
    assert many[-1].session == f"s{SESSIONS_MOST + 4}"
    assert read_sessions(kept(many)) == many
    for text in (None, "", "[", "7", '{"sessions": 7}'):
        assert read_sessions(text) == ()
    long = bounded(replace(ONE, folder="x\n" * 5_000, waits="\x1b[31m" * 5_000))
    assert long is not None
    assert (len(long.folder) <= FOLDER_MOST, len(long.waits) <= TEXT_MOST) == (True, True)
    assert long.waits.isprintable()
    for strange in ("", "../x", "a" * 65, "-x"):
        assert bounded(replace(ONE, session=strange)) is None
    assert bounded(replace(ONE, client="x y")) is None
