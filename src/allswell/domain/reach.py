"""Which addresses a webhook may reach.

A URL that somebody has set up names a host; where that leads is only known when it is looked up, and may change from
one moment to the next. So the rule is about addresses, and is asked right before connecting, to the address that is
then connected to. Without leave, nothing inside is reached: no private, loopback, link-local or otherwise special
address. The addresses at which clouds hand out credentials are never reached at all.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_METADATA = frozenset(
    map(
        ip_address,
        (
            *("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "fd20:ce::254"),
            *("100.100.100.200", "192.0.0.192", "168.63.129.16"),
        ),
    )
)
_WRAPPED = ip_network("64:ff9b::/96")
"""An IPv4 address behind a translator."""


def why_not(address: str, *, private: bool) -> str | None:
    """Why this address may not be reached; None if it may. `private`: those inside may be."""
    try:
        found = _inner(ip_address(address.partition("%")[0]))
    except ValueError:
        return "is no address"
    if found in _METADATA or found.is_link_local:
        return "is where machines ask for their own credentials (link-local or metadata)"
    if found.is_multicast or found.is_unspecified:
        return "is no single machine's"
    inside = not found.is_global or found.is_reserved or (isinstance(found, IPv6Address) and found.is_site_local)
    if private or not inside:
        return None
    return "is not on the public internet; allow_private = true would allow it"


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The address that really is reached, where an IPv6 one holds one of IPv4."""
    if isinstance(address, IPv4Address):
        return address
    if address in _WRAPPED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1] or address
