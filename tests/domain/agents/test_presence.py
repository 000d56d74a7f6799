"""A supervisor's name is one process's at a time, and free again when its owner is silent or dead."""

import pytest

from allswell.domain.agents.status import Presence, check_free, is_alive
from allswell.domain.ids import Millis
from allswell.errors import Refused

NOON = Millis(1_700_000_000_000)
OWNER = Presence("main", "m", "ship", 42, "boot", "ns", 7, Millis(NOON - 60_000), NOON)


def test_a_name_that_is_taken_says_by_whom() -> None:
    with pytest.raises(
        Refused, match="'main' runs already: process 42 on ship, for 1m; stop it, or give this one"
    ) as told:
        check_free(OWNER, NOON, dead=False)
    assert told.value.code == "name_taken"


def test_a_name_is_free_after_three_paces_of_silence_or_when_its_owner_is_dead() -> None:
    check_free(None, NOON, dead=False)
    check_free(OWNER, NOON, dead=True)
    assert is_alive(OWNER, Millis(NOON + 14_999))
    assert not is_alive(OWNER, Millis(NOON + 15_000))
    check_free(OWNER, Millis(NOON + 15_000), dead=False)
