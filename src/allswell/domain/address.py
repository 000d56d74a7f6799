"""Whom a request is for: an agent by its name, whoever has a role, or the address of a webhook.

    oracle                       the agent of that name; of a fleet's agent with several slots, any of them
    role:reviewer                whoever has the role
    https://oracle.example/hook  a webhook: a 2xx is the answer

Requests lie in the pool like all tasks, so whom one is for is its role: an agent's name behind an `@`, which nobody has
as a role, the role itself, or `WEBHOOKS`. No claim is served from the first and the last unless it asks for them.
"""

from __future__ import annotations

from allswell.domain.reach import wrong_with_url
from allswell.domain.submit import NAME_MAX, check_name
from allswell.errors import Refused

WEBHOOKS = "(webhooks)"
"""The role of requests to an address; whoever delivers webhooks takes them."""
ADDRESS_MAX = 2_000
LEAVE = 'webhook_hosts = "private"'
"""What the settings say to let webhook requests inside."""
_ROLE = "role:"
_AGENT = "@"


def role_for(to: str, kind: str) -> str:
    """The role of the request's task; refused where nobody could be meant."""
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
            raise Refused("bad_address", f"{role!r} is no role that anybody could have", where="to")
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
    """The role that a request is for; None where it is for somebody in particular."""
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


def names_of(holder: str) -> tuple[str, ...]:
    """The names under which a holder can be asked."""
    return tuple(dict.fromkeys((holder, holder.rpartition("/")[2], family(holder))))
