"""The server's clock as a process sees it: it does not go back by itself, and one that was set back is followed."""

from allswell.store.postgres.transaction import ServerClock

AT = 1_800_000_000_000


def test_a_server_whose_clock_was_set_back_is_followed() -> None:
    """A process that lives on must not stand still until the server has caught up with what it once said."""
    clock = ServerClock()
    assert clock.see(AT) == AT
    assert clock.see(AT - 300) == AT, "two answers that crossed"
    assert clock.see(AT - 3_600_000) == AT - 3_600_000
    assert AT - 3_600_000 <= clock.guess() < AT
