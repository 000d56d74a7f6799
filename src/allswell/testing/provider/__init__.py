"""A model provider for tests of anything that calls one; see `Provider` for how it is used."""

from allswell.testing.provider.acts import (
    Act,
    AnyAct,
    BreakOff,
    CallTool,
    Drip,
    Fail,
    FailInStream,
    Garble,
    Hang,
    Reply,
    Reset,
    context_overflow,
    overloaded,
    quota_used_up,
    rate_limited,
    unauthorized,
)
from allswell.testing.provider.server import ACT_HEADER, Provider, Request

__all__ = [
    "ACT_HEADER",
    "Act",
    "AnyAct",
    "BreakOff",
    "CallTool",
    "Drip",
    "Fail",
    "FailInStream",
    "Garble",
    "Hang",
    "Provider",
    "Reply",
    "Request",
    "Reset",
    "context_overflow",
    "overloaded",
    "quota_used_up",
    "rate_limited",
    "unauthorized",
]
