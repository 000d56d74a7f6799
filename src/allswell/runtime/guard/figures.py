"""The policy of guards that name none: the figures of the settings, unless the program says otherwise."""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.deadline import ScopeKind
from allswell.domain.guard import GuardPolicy
from allswell.runtime.limits import limits

_in_force: GuardPolicy | None = None


def usual_policy() -> GuardPolicy:
    """The policy in force; the settings are loaded when it is first asked for."""
    global _in_force  # noqa: PLW0603 - one set of settings for one process
    if _in_force is None:
        from allswell.settings import load

        settings = load()
        attempt, breaker = limits().timeout(ScopeKind.LLM_CALL), settings.breaker()
        lease = max(breaker.probe_lease, attempt)
        retry = settings.policy_for("").retry
        breaker = replace(breaker, probe_lease=lease)
        _in_force = GuardPolicy(attempt_timeout=attempt, retry=retry, breaker=breaker, patient=settings.patient)
    return _in_force


def use_policy(given: GuardPolicy | None) -> None:
    """Let guards that name no policy go by this one; None: by the settings, loaded anew when next asked for."""
    global _in_force  # noqa: PLW0603
    _in_force = given
