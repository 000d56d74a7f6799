"""What a coordinator still owes after a restart: all that the replay does not show, as the server has it."""

import pytest

from allswell.domain.build.announcements import still_owed

pytestmark = pytest.mark.row("C8")

SECRET = "AKIAABCDEFGHIJKLMNOP"


def test_a_line_whose_secret_the_server_replaced_was_said() -> None:
    owed = (
        "ACK a @x",
        f"AUDIT a FAIL it prints {SECRET} twice: {SECRET}",
        f"AUDIT b FAIL it prints {SECRET}",
        "TASKS x a",
    )
    hidden = "[REDACTED:aws_access_key]"
    assert still_owed(owed, ["ACK a @x", f"AUDIT a FAIL it prints {hidden} twice: {hidden}"]) == owed[2:]
    assert still_owed(owed, [f"AUDIT b FAIL it prints {hidden}"]) == (*owed[:2], owed[3])


def test_the_same_line_is_owed_as_often_as_it_was_not_said() -> None:
    owed = ("ACK a @x", "TIMEOUT a", "ACK a @x")
    assert still_owed(owed, ["ACK a @x"]) == ("TIMEOUT a", "ACK a @x")
    assert still_owed(owed, ["something else", "[REDACTED]"]) == owed[1:]
