"""Lines go out as fast as the server allows, in order, in the least number of messages, and none is lost (C8)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allswell.domain.build.announcements import MESSAGE_BYTES, AnnouncePace, Outgoing
from allswell.domain.build.hearing import HeardMessage, KnownMessages
from allswell.domain.build.line import AckLine, Line, RejectLine, read, tasks_lines, write
from allswell.domain.ids import Millis

pytestmark = pytest.mark.row("C8")

HERE = "#build"


class StrictServer:
    """Takes one message a second and throws the others away; echoes and keeps what it took."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []
        self.last = -10_000

    def take(self, place: str, content: str, now: int) -> bool:
        if now - self.last < 1_000:
            return False
        assert len(content.encode()) <= 4_096
        self.last = now
        self.taken.append((place, content))
        return True


def say_all(outgoing: Outgoing, server: StrictServer, now: int = 0, late: int = 30) -> int:
    """Let time pass until everything has arrived; the moment when it had."""
    while len(outgoing):
        due = outgoing.due_at()
        assert due is not None
        now = max(now, due)
        message = outgoing.take(Millis(now))
        assert message is not None
        now += late
        if server.take(message.place, message.content, now):
            assert outgoing.echoed(Millis(now + late)) == message.lines
        else:
            outgoing.limited(Millis(now + late))
    return now


def test_a_burst_of_fifty_claims_is_answered_in_the_least_number_of_messages() -> None:
    said: list[Line] = []
    for number in range(25):
        said.append(AckLine(f"component-{number}", f"@{number:016x}"))
        said.append(RejectLine(f"component-{number}", f"@{number + 25:016x}", "already claimed"))
    said += tasks_lines("https://example.org/spec", [f"component-{number}" for number in range(25, 60)])
    outgoing, server = Outgoing(), StrictServer()
    for line in said:
        outgoing.put(HERE, write(line))
    say_all(outgoing, server)
    assert [line for _, content in server.taken for line in read(content)] == said
    size = len("\n".join(map(write, said)).encode())
    assert len(server.taken) == -(-size // MESSAGE_BYTES) == 1


def test_messages_are_a_second_apart_and_full() -> None:
    outgoing, server = Outgoing(), StrictServer()
    lines = [f"AUDIT c{number} FAIL {'x' * 900}" for number in range(40)]
    for line in lines:
        outgoing.put(HERE, line)
    end = say_all(outgoing, server)
    assert "\n".join(content for _, content in server.taken).split("\n") == lines
    assert len(server.taken) == 10  # four to a message
    assert end < 10 * 1_100


def test_what_was_thrown_away_is_said_again_and_later_each_time() -> None:
    outgoing = Outgoing()
    outgoing.put(HERE, "ACK a x")
    pauses = []
    now = 0
    for _ in range(7):
        due = outgoing.due_at()
        assert due is not None
        pauses.append(due - now)
        now = int(due)
        message = outgoing.take(Millis(now))
        assert message is not None
        assert message.content == "ACK a x"
        outgoing.limited(Millis(now))
    assert pauses == [0, 1_000, 2_000, 4_000, 8_000, 16_000, 16_000]


def test_lines_that_come_while_one_is_under_way_gather() -> None:
    outgoing = Outgoing()
    outgoing.put(HERE, "a")
    assert outgoing.take(Millis(0)) is not None
    for line in "bcd":
        outgoing.put(HERE, line)
    assert outgoing.take(Millis(5_000)) is None
    assert outgoing.echoed(Millis(5_000)) == 1
    assert outgoing.take(Millis(5_999)) is None
    gathered = outgoing.take(Millis(6_000))
    assert gathered is not None
    assert gathered.content == "b\nc\nd"


def test_what_the_server_says_in_our_name_is_the_echo_of_what_was_sent_and_of_nothing_else() -> None:
    outgoing = Outgoing()
    outgoing.put(HERE, "a")
    assert outgoing.echoed(Millis(0)) == 0  # it was not sent yet
    outgoing.take(Millis(0))
    outgoing.limited(Millis(1))
    assert outgoing.echoed(Millis(1)) == 0  # the server has thrown it away
    outgoing.take(Millis(5_000))
    assert outgoing.echoed(Millis(5_001)) == 1
    assert outgoing.echoed(Millis(5_002)) == 0
    assert len(outgoing) == 0


def test_a_message_that_the_server_takes_only_later_waits_and_is_sent_again() -> None:
    outgoing = Outgoing()
    outgoing.put(HERE, "a")
    first = outgoing.take(Millis(0))
    outgoing.held(Millis(60_000))
    assert (outgoing.due_at(), outgoing.take(Millis(59_999))) == (60_000, None)
    assert outgoing.take(Millis(60_000)) == first


def test_without_an_echo_the_connection_is_not_trusted() -> None:
    outgoing = Outgoing(AnnouncePace(echo=5_000))
    outgoing.put(HERE, "a")
    outgoing.take(Millis(0))
    assert not outgoing.is_overdue(Millis(4_999))
    assert outgoing.due_at() == 5_000
    assert outgoing.is_overdue(Millis(5_000))


@pytest.mark.parametrize("taken", [True, False])
def test_after_a_break_the_replay_says_whether_it_was_taken(taken: bool) -> None:
    outgoing = Outgoing()
    outgoing.put(HERE, "a")
    outgoing.take(Millis(0))
    outgoing.cut_off()
    outgoing.put(HERE, "b")
    assert (outgoing.due_at(), outgoing.take(Millis(99_000))) == (None, None)
    if taken:
        assert outgoing.echoed(Millis(60_000)) == 1
    outgoing.caught_up(Millis(60_000))
    message = outgoing.take(Millis(61_000))
    assert message is not None
    assert message.content == ("b" if taken else "a")  # word for word: not joined with what came later


def test_lines_to_agents_are_joined_across_each_other_but_not_across_the_channel() -> None:
    outgoing, server = Outgoing(), StrictServer()
    for place, line in [("@x", "1"), ("@y", "2"), ("@x", "3"), (HERE, "4"), ("@x", "5"), (HERE, "6")]:
        outgoing.put(place, line)
    say_all(outgoing, server)
    assert server.taken == [("@x", "1\n3"), ("@y", "2"), (HERE, "4"), ("@x", "5"), (HERE, "6")]


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from([HERE, "@x", "@y", "@z"]), st.integers(1, 2_500)), max_size=30),
    st.lists(st.sampled_from(["echo", "limit", "cut before", "cut after"]), max_size=30),
)
def test_whatever_happens_all_arrives_in_order_for_each_receiver(
    wanted: list[tuple[str, int]], troubles: list[str]
) -> None:
    outgoing = Outgoing()
    said = [(place, f"{number}." + "x" * size) for number, (place, size) in enumerate(wanted)]
    for place, line in said:
        outgoing.put(place, line)
    taken: list[tuple[str, str]] = []
    now = 0
    while len(outgoing):
        due = outgoing.due_at()
        assert due is not None
        now = max(now, int(due))
        message = outgoing.take(Millis(now))
        assert message is not None
        trouble = troubles.pop() if troubles else "echo"
        if trouble in {"echo", "cut after"}:
            taken.append((message.place, message.content))
        if trouble == "limit":
            outgoing.limited(Millis(now))
            continue
        if trouble.startswith("cut"):
            outgoing.cut_off()
        if trouble != "cut before":
            assert outgoing.echoed(Millis(now))
        if trouble.startswith("cut"):
            outgoing.caught_up(Millis(now))
    arrived = [(place, line) for place, content in taken for line in content.split("\n")]
    assert sorted(arrived) == sorted(said)
    for agent in ("@x", "@y", "@z"):
        assert [one for one in arrived if one[0] in {HERE, agent}] == [one for one in said if one[0] in {HERE, agent}]


def test_a_replayed_message_is_known_again() -> None:
    known = KnownMessages(most=3)
    first = HeardMessage("@a", "CLAIM x", Millis(5), "m1").mark
    assert known.is_new(first)
    assert not known.is_new(HeardMessage("@a", "CLAIM x", Millis(5), "m1", replay=True).mark)
    nameless = HeardMessage("@a", "CLAIM x", Millis(6)).mark
    assert known.is_new(nameless)
    assert not known.is_new(nameless)
    assert known.is_new(HeardMessage("@b", "CLAIM x", Millis(6)).mark)
    assert known.is_new(HeardMessage("@a", "CLAIM x", Millis(7)).mark)  # said again
    assert known.is_new(first)  # so long ago that it was forgotten
