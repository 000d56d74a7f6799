"""The arithmetic of the settings: their figures, each with its place, put before the rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from allswell.domain.check.fleet import (
    CheckIns,
    WorkerLimits,
    busy_is_not_stalled,
    checkins_work,
    conflicts_have_agents,
    folders_apart,
    grace_fits_lease,
    long_after_visibility,
    pool_before_visibility,
    roles_set_up,
    session_of_whom,
    statement_before_visibility,
)
from allswell.domain.check.model import CheckFigure, CheckRule, Finding, Severity, worth_telling
from allswell.domain.check.retries import Retrying, retries_above_total, retries_fit, retry_after_fits
from allswell.domain.check.scopes import never_fires
from allswell.domain.scopes import ScopeKind
from allswell.settings.settings import Settings
from allswell.settings.sources import Part

BAD_SETTING = CheckRule("bad_setting", Severity.ERROR, "Settings can be read, and none contradicts another at once.")
RETRY_FIGURES = ("retries", "max_attempts", "backoff", "jitter", "retry_after_default", "retry_after_cap")
BREAKER_FIGURES = ("breaker.pause", "breaker.open_after")
_FIXES: Mapping[Part, str] = {
    "all": "No command runs until this is fixed; `allswell config NAME` explains a setting.",
    "figures": "Only commands that read run until this is fixed; `allswell config NAME` explains a setting.",
    "sinks": "No sink is used until this is fixed; `allswell help notifications` lists what a sink can have.",
    "hooks": "The server does not start until this is fixed; `allswell help server` lists what a hook can have.",
    "agents": "No agent is started until this is fixed; `allswell help fleet` lists what an agent can have.",
}
CALL, TOOL = "a call of a model", "a tool"


def refusals(settings: Settings) -> list[Finding]:
    """What is wrong with the settings themselves: whoever needs that part of them does not run."""
    return [
        BAD_SETTING.broken(
            problem.says if problem.says.endswith("?") else f"{problem.says}.",
            (),
            fix=_FIXES[problem.part],
            place=problem.place,
        )
        for problem in settings.problems
    ]


def findings(settings: Settings) -> list[Finding]:
    """What the settings' figures say about each other."""
    told = [*_scopes(settings), *_worker(settings), *_role(settings, "")]
    told += folders_apart(settings.fleet, str(Path.cwd()))
    told += grace_fits_lease(settings.fleet, int(settings.value("fleet.lease") or 0))
    own = {role: next((given.source.place for given in table.values()), None) for role, table in settings.roles.items()}
    told += roles_set_up(settings.fleet, own)
    conflicts = settings.given.get("conflict_role")
    role, place = ("", None) if conflicts is None else (str(conflicts.value or ""), conflicts.source.place)
    told += conflicts_have_agents(settings.fleet, role, place)
    told += session_of_whom(settings.fleet)
    common = {one.rule for one in told if worth_telling(one)}
    for role in settings.known_roles():
        of_role = _role(settings, role)
        # A role that nobody touched differs by its run limit alone; what it shares with all is said once.
        told += of_role if role in settings.roles else [one for one in of_role if one.rule not in common]
    return list(dict.fromkeys(one for one in told if worth_telling(one)))


def _scopes(settings: Settings) -> Iterator[Finding]:
    flow, step = settings.figure("timeouts.flow"), settings.figure("timeouts.step")
    call, tool = settings.figure("timeouts.llm_call"), settings.figure("timeouts.tool")
    yield from never_fires(step, flow)
    yield from never_fires(call, step)
    yield from never_fires(tool, step)
    yield from never_fires(settings.figure("delegation_timeout"), settings.figure("agent_timeout"))
    yield from retries_fit(calls(settings, call), step, most=settings.limits().hard_limit(ScopeKind.STEP))
    yield from retry_after_fits(settings.figure("retry.retry_after_cap"), step)


def _worker(settings: Settings) -> Iterator[Finding]:
    worker = WorkerLimits(
        settings.figure("worker.visibility_timeout"),
        settings.figure("worker.statement_timeout"),
        settings.figure("worker.pool_timeout"),
    )
    yield from statement_before_visibility(worker)
    yield from pool_before_visibility(worker)
    yield from long_after_visibility(settings.figure("worker.long_timeout"), worker.visibility)


def _role(settings: Settings, role: str) -> Iterator[Finding]:
    if settings.value("retry.retries", role) is not None:
        yield from retries_above_total(
            settings.figure("retry.retries", role), settings.figure("retry.max_attempts", role)
        )
    watched = CheckIns(
        settings.figure("agent_timeout", role),
        settings.figure("checkpoint_interval", role),
        settings.figure("checkpoint_timeout", role),
        settings.figure("stall_threshold", role),
        settings.figure("timeout_escalation", role),
        None if settings.value("idle", role) is None else settings.figure("idle", role),
    )
    yield from checkins_work(watched)
    yield from busy_is_not_stalled(watched, settings.figure("timeouts.llm_call"), CALL)
    yield from busy_is_not_stalled(watched, settings.figure("timeouts.tool"), TOOL)


def calls(settings: Settings, call: CheckFigure) -> Retrying:
    """How calls of a model are retried."""
    figures = [settings.figure(name) for name in (*(f"retry.{key}" for key in RETRY_FIGURES), *BREAKER_FIGURES)]
    written = tuple(one for one in figures if one.written)
    return Retrying(CALL, call, settings.policy_for("").retry, written, breaker=settings.breaker())
