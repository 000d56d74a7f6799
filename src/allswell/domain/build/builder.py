"""What a builder makes of the coordinator's lines: what to claim, when to begin, when to stop.

It holds one component at a time. It begins only after an ACK, and stops as soon as it hears that it has lost the
component; then it claims it again, unless somebody else has it. After RETRY it never claims that one again. Only the
coordinator's lines count, so nobody else can make it begin, stop or change its work.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from allswell.domain.build.line import (
    AckLine,
    AuditLine,
    ClarifyLine,
    CompleteLine,
    ErrorLine,
    Line,
    MergedLine,
    RejectLine,
    RetryLine,
    SkippedLine,
    TasksLine,
    TimeoutLine,
)
from allswell.domain.build.state import BUILD_OVER

_MOST_NOTES = 100


class BuilderState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a builder knows."""

    me: str
    free: tuple[str, ...] = ()
    """What was offered, and is not known to be taken."""
    wants: str = ""
    """What it has claimed and has no answer to."""
    holds: str = ""
    never: tuple[str, ...] = ()
    """What it has failed too often."""
    notes: tuple[tuple[str, str], ...] = ()
    """What humans have said of components."""
    over: bool = False


class ClaimNow(msgspec.Struct, frozen=True):
    """Say CLAIM."""

    component: str


class BeginWork(msgspec.Struct, frozen=True):
    """Build it, or mend it: `details` are what the last audit found, or what a human has said of it."""

    component: str
    details: str = ""


class CeaseWork(msgspec.Struct, frozen=True):
    """Stop: the component is lost. What was done stays where it is."""

    component: str
    why: str


BuilderAct = ClaimNow | BeginWork | CeaseWork


def builder_hears(state: BuilderState, line: Line) -> tuple[BuilderState, list[BuilderAct]]:
    """What a line of the coordinator's changes, and what to do."""
    acts: list[BuilderAct] = []
    match line:
        case TasksLine(_, free):
            state = replace(state, free=tuple(dict.fromkeys((*state.free, *free))))
        case AckLine(component, agent):
            state, acts = _given(_taken(state, component), component, agent)
        case ClarifyLine() | SkippedLine() | ErrorLine():
            state, acts = _decided(state, line)
        case RejectLine(component, agent, reason) if agent == state.me and component in {state.wants, state.holds}:
            state, acts = _rejected(state, component, reason)
        case AuditLine(component, passed, details) if component == state.holds and not passed:
            acts.append(BeginWork(component, details))
        case TimeoutLine(component):
            if component == state.holds:
                acts.append(CeaseWork(component, "we were silent for too long"))
                state = replace(state, holds="")
            state = replace(state, free=tuple(dict.fromkeys((component, *state.free))))
        case RetryLine(component):
            if component == state.holds:
                acts.append(CeaseWork(component, "our work on it has failed too often"))
                state = replace(state, holds="", never=(*state.never, component))
            state = replace(state, free=tuple(dict.fromkeys((*state.free, component))))
        case MergedLine(component):
            state = _taken(state, component)
            state = replace(state, holds="") if component == state.holds else state
        case CompleteLine():
            return replace(state, over=True, wants="", holds=""), acts
        case _:
            pass
    return _next(state, acts)


def _decided(state: BuilderState, line: ClarifyLine | SkippedLine | ErrorLine) -> tuple[BuilderState, list[BuilderAct]]:
    """What humans have decided: about a component, or about the build."""
    acts: list[BuilderAct] = []
    match line:
        case ClarifyLine(component, text):
            kept = [one for one in state.notes if one[0] != component]
            state = replace(state, notes=(*kept, (component, text))[-_MOST_NOTES:])
        case SkippedLine(component, others):
            for name in (component, *others):
                state = _taken(state, name)
            if state.holds in {component, *others}:
                acts.append(CeaseWork(state.holds, "a human has left it out"))
                state = replace(state, holds="")
        case ErrorLine(text) if text in BUILD_OVER:
            acts += [CeaseWork(state.holds, text)] if state.holds else []
            state = replace(state, over=True, wants="", holds="")
        case _:
            pass
    return state, acts


def builder_gives_up(state: BuilderState, component: str) -> tuple[BuilderState, list[BuilderAct]]:
    """It has said ABORT, or nobody has answered its claim: on to something else."""
    if component not in {state.holds, state.wants}:
        return state, []
    state = replace(_taken(state, component), holds="", wants="")
    return _next(state, [])


def _given(state: BuilderState, component: str, agent: str) -> tuple[BuilderState, list[BuilderAct]]:
    """Somebody has it now: we, or another one in our place."""
    if agent == state.me and component == state.holds:
        return state, []  # said again: it goes on with its work
    if agent == state.me:
        said = dict(state.notes).get(component, "")
        return replace(state, holds=component, wants=""), [BeginWork(component, said)]
    if component == state.holds:
        return replace(state, holds=""), [CeaseWork(component, f"{agent} has it now")]
    return state, []


def _rejected(state: BuilderState, component: str, reason: str) -> tuple[BuilderState, list[BuilderAct]]:
    """A claim that was refused, or the news that a component is lost."""
    acts: list[BuilderAct] = []
    if component == state.holds:
        acts.append(CeaseWork(component, reason))
        again = reason.endswith("claim it again")
        state = replace(_taken(state, component), holds="")
        return (replace(state, free=(component, *state.free)) if again else state), acts
    state = replace(_taken(state, component), wants="")
    return (replace(state, never=(*state.never, component)) if "audits" in reason else state), acts


def _taken(state: BuilderState, component: str) -> BuilderState:
    left = tuple(name for name in state.free if name != component)
    wants = "" if state.wants == component else state.wants
    return replace(state, free=left, wants=wants)


def _next(state: BuilderState, acts: list[BuilderAct]) -> tuple[BuilderState, list[BuilderAct]]:
    """Claim something, if there is nothing to do."""
    if state.holds or state.wants or state.over:
        return state, acts
    wanted = next((name for name in state.free if name not in state.never), None)
    if wanted is None:
        return state, acts
    return replace(state, wants=wanted), [*acts, ClaimNow(wanted)]
