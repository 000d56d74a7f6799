"""Which addresses a webhook may reach."""

import pytest

from allswell.domain.mesh.routing import why_not


@pytest.mark.row("M9")
@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"])
def test_what_is_on_the_public_internet_may_be_reached(address: str) -> None:
    assert why_not(address, private=False) is None


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "10.0.0.7", "172.16.3.4", "192.168.1.1", "100.64.0.1", "::1", "fd12::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "0.1.2.3", "fec0::1"),
    ],
)
def test_what_is_inside_may_be_reached_only_with_leave(address: str) -> None:
    assert "allow_private" in str(why_not(address, private=False))
    assert why_not(address, private=True) is None


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fd00:ec2::254", "100.100.100.200"),
        *("168.63.129.16", "192.0.0.192", "fd20:ce::254"),
        *("fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "nonsense", ""),  # noqa: S104
    ],
)
def test_credentials_of_machines_and_no_machine_at_all_are_never_reached(address: str) -> None:
    assert why_not(address, private=False) is not None
    assert why_not(address, private=True) is not None
