"""The receiver of a request: an agent by its name, any agent of a role, or the address of a webhook.

    oracle                       the agent of that name; of a fleet's agent with several slots, any of them
    role:reviewer                any agent of that role
    https://oracle.example/hook  a webhook: a 2xx is the answer

A request is a task, and its receiver is the task's role: an agent's name behind an `@` (which is no role of an agent),
the role itself, or `WEBHOOKS`.
No claim is served from the first and the last unless it asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from allswell.domain.task.submit import NAME_MAX, WEBHOOKS, check_name
from allswell.errors import Refused

# Which addresses a webhook may reach, and which URLs can name one.
#
# A URL in the settings names a host; where that leads is only known when it is looked up, and may change from
# one moment to the next. So the rule is about addresses, and is asked right before connecting, to the address that is
# then connected to. Without leave, nothing inside is reached: no private, loopback, link-local or otherwise special
# address. The addresses at which clouds hand out credentials are never reached at all.

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
_NO_ADDRESS = "is not an address"
LEAVE_URL = "allow_private = true"
"""What a sink says to be let inside."""


def wrong_with_url(url: str, *, private: bool, leave: str = LEAVE_URL) -> str | None:
    """Why nothing can be posted there, as far as that can be known without looking anything up; None if it can."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"this is not a URL: {error}"
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
        return f"without TLS anyone on the way can read it: use https, or {leave} for a host inside"
    return "nothing listens on port 0" if port == 0 else None


def why_not(address: str, *, private: bool, leave: str = LEAVE_URL) -> str | None:
    """Why this address may not be reached; None if it may. `private`: those inside may be."""
    try:
        found = _inner(ip_address(address.partition("%")[0]))
    except ValueError:
        return _NO_ADDRESS
    if found in _METADATA or found.is_link_local:
        return "is where machines ask for their own credentials (link-local or metadata)"
    if found.is_multicast or found.is_unspecified:
        return "is not the address of a single machine"
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


ADDRESS_MAX = 2_000
LEAVE = 'webhook_hosts = "private"'
"""What the settings say to let webhook requests inside."""
_ROLE = "role:"
_AGENT = "@"


def role_for(to: str, kind: str) -> str:
    """The role of the request's task; refused where no receiver could be meant."""
    is_address = "://" in to
    if kind == "webhook" or is_address:
        if kind != "webhook":
            text = f"{to!r} is an address, and a {kind} is for an agent or a role; ask it with kind webhook"
            raise Refused("bad_address", text, where="to")
        check_webhook(to, private=True)
        return WEBHOOKS
    if to.startswith(_ROLE):
        role = to[len(_ROLE) :]
        check_name(role, "role")
        if role.startswith(_AGENT) or role == WEBHOOKS:
            raise Refused("bad_address", f"{role!r} is not a valid role", where="to")
        return role
    check_name(to, "to")
    if len(to) >= NAME_MAX:
        raise Refused("bad_name", f"to has {len(to)} characters; an agent's name has fewer", where="to")
    return f"{_AGENT}{to}"


def check_webhook(to: str, *, private: bool) -> None:
    """Refuse an address to which nothing could be posted; `private`: those inside may be reached."""
    wrong = "it is too long" if len(to) > ADDRESS_MAX else wrong_with_url(to, private=private, leave=LEAVE)
    if wrong is not None:
        text = f"a webhook goes to an address such as https://oracle.example/hook, and not here: {wrong}"
        raise Refused("bad_address", text, where="to")


def role_of(to: str) -> str | None:
    """The role that a request is for; None if it is for one agent or address."""
    return to[len(_ROLE) :] if to.startswith(_ROLE) else None


def agent_of(role: str) -> str | None:
    """The agent that tasks of this role are for; None where it is a role like any other."""
    return role[len(_AGENT) :] if role.startswith(_AGENT) else None


def inbox_role(agent: str) -> str:
    """The role of the requests that are for this agent."""
    return f"{_AGENT}{agent}"


def family(agent: str) -> str:
    """The name of an agent in the settings, of the name under which one of its slots holds tasks."""
    name = agent.rpartition("/")[2]
    stem, _, number = name.rpartition(".")
    return stem if stem and number.isdecimal() else name


def is_agent(holder: str, name: str) -> bool:
    """Whether this holder is the agent of that name, or one of its slots."""
    return name in (holder, family(holder))


def may_be_asked(holder: str, name: str, asked_as: Sequence[str] | None) -> bool:
    """Whether what is asked of the agent of that name is for this holder; a key may bind it to names of its own."""
    return is_agent(holder, name) and (asked_as is None or any(is_agent(own, name) for own in asked_as))


def names_of(holder: str) -> tuple[str, ...]:
    """The names under which a holder can be asked."""
    return tuple(dict.fromkeys((holder, holder.rpartition("/")[2], family(holder))))
