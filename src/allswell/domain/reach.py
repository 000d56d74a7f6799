"""Which addresses a webhook may reach, and which URLs can name one.

A URL that somebody has set up names a host; where that leads is only known when it is looked up, and may change from
one moment to the next. So the rule is about addresses, and is asked right before connecting, to the address that is
then connected to. Without leave, nothing inside is reached: no private, loopback, link-local or otherwise special
address. The addresses at which clouds hand out credentials are never reached at all.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

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
_NO_ADDRESS = "is no address"
LEAVE = "allow_private = true"
"""What a sink says to be let inside."""


def wrong_with_url(url: str, *, private: bool, leave: str = LEAVE) -> str | None:
    """Why nothing can be posted there, as far as that can be told without looking anything up; None if it can."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"this is no URL: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        return "write https://host/path"
    if not url.isascii():
        return "write other letters as a URL has them: %C3%A9 in a path, xn--… in a host"
    if parts.username is not None or parts.password is not None:
        return "a name or password in a URL ends up in logs; what is sent is signed instead"
    reason = why_not(parts.hostname, private=private, leave=leave)
    if reason not in (None, _NO_ADDRESS):
        return f"{parts.hostname} {reason}"
    if parts.scheme == "http" and not private:
        return f"without TLS anybody on the way can read it: use https, or {leave} for a host inside"
    return "nothing listens on port 0" if port == 0 else None


def why_not(address: str, *, private: bool, leave: str = LEAVE) -> str | None:
    """Why this address may not be reached; None if it may. `private`: those inside may be."""
    try:
        found = _inner(ip_address(address.partition("%")[0]))
    except ValueError:
        return _NO_ADDRESS
    if found in _METADATA or found.is_link_local:
        return "is where machines ask for their own credentials (link-local or metadata)"
    if found.is_multicast or found.is_unspecified:
        return "is no single machine's"
    inside = not found.is_global or found.is_reserved or (isinstance(found, IPv6Address) and found.is_site_local)
    if private or not inside:
        return None
    return f"is not on the public internet; {leave} would allow it"


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The address that really is reached, where an IPv6 one holds one of IPv4."""
    if isinstance(address, IPv4Address):
        return address
    if address in _WRAPPED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1] or address
