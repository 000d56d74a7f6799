"""The figures of a flow file: `timeouts:`, and of each step `timeout_override`, `retry` and `needs` (F12).

Only what has to do with time is read here, and every mistake in it is a finding with its place, so that one look shows
them all. What the file does not say comes from the settings.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from allswell.domain.arithmetic.figure import Figure, Place
from allswell.domain.arithmetic.finding import Finding, Rule, Severity
from allswell.domain.arithmetic.retries import Retrying
from allswell.domain.arithmetic.steps import Need, Step
from allswell.domain.deadline import ScopeKind, positive
from allswell.domain.policy import Policy, broken_rules
from allswell.domain.retry import RetryPolicy
from allswell.errors import Refused
from allswell.flows.loading import Entry, Node
from allswell.settings.arithmetic import RETRY_FIGURES
from allswell.settings.catalogue import SETTINGS
from allswell.settings.settings import Settings
from allswell.settings.values import Unfit, read

BAD_FLOW = Rule("bad_flow", Severity.ERROR, "A flow file can be read, and its figures are figures.")

_TOP = ("name", "timeouts", "steps", "inputs")
_STEP = (
    "id", "needs", "run", "agent", "prompt", "python", "env", "outputs", "timeout_override", "retry", "audit", "matrix",
)  # fmt: skip
_TIMELY = {"timeouts", "steps", "id", "needs", "timeout_override", "retry"}
_MOST_WRONG = 100
"""So many mistakes are told; a file with more is another kind of file."""
_CALLS_MODELS = ("agent", "python")


class FlowStep(msgspec.Struct, frozen=True):
    """A step as far as time is concerned."""

    step: Step
    override: Figure | None
    retries: tuple[Figure, Figure] | None
    """Its own number of retries and the total it must keep to, where it has such a number."""
    calls_models: bool


class FlowTiming(msgspec.Struct, frozen=True):
    """Every figure of a flow, and what was wrong with those that are missing."""

    timeouts: dict[ScopeKind, Figure]
    steps: tuple[FlowStep, ...]
    findings: tuple[Finding, ...]


def read_timing(root: Node, file: str, settings: Settings) -> FlowTiming:
    """The figures of a flow file."""
    return _Flow(file, settings).read(root)


class _Flow:
    def __init__(self, file: str, settings: Settings) -> None:
        self.file = file
        self.settings = settings
        self.findings: list[Finding] = []

    def read(self, root: Node) -> FlowTiming:
        """Everything that the file says about time."""
        timeouts = {kind: self.settings.figure(f"timeouts.{kind}") for kind in ScopeKind}
        steps: list[FlowStep] = []
        if not isinstance(root.value, dict) or not {"timeouts", "steps"} & root.value.keys():
            self._wrong(root, "This is no flow: it has neither `timeouts:` nor `steps:`.", "Name a flow file.")
        else:
            self._strange(root.value, _TOP, "a flow")
            if entry := root.value.get("timeouts"):
                timeouts |= self._timeouts(entry)
            if entry := root.value.get("steps"):
                steps = list(self._steps(entry, timeouts[ScopeKind.STEP]))
        return FlowTiming(timeouts, tuple(steps), tuple(self.findings))

    def _timeouts(self, entry: Entry) -> Iterator[tuple[ScopeKind, Figure]]:
        kinds = tuple(kind.value for kind in ScopeKind)
        for name, given in self._entries(entry, "timeouts", "such as `step: 10m`"):
            if name not in kinds:
                self._wrong(given, f"There is no scope {name!r}.", _offer(name, kinds))
            elif figure := self._duration(f"timeouts.{name}", given):
                yield ScopeKind(name), figure

    def _steps(self, entry: Entry, usual: Figure) -> Iterator[FlowStep]:
        if not isinstance(entry.node.value, list):
            self._wrong(entry, "`steps:` must be a list.", "Begin each step with `- id: NAME`.")
            return
        ids: dict[str, Node] = {}
        for number, node in enumerate(entry.node.value, 1):
            if not isinstance(node.value, dict):
                self._wrong(node, f"Step {number} must be a mapping.", "Begin it with `- id: NAME`.")
                continue
            self._strange(node.value, _STEP, "a step")
            id_ = self._id(node, node.value, number)
            if id_ in ids:
                line = ids[id_].mark.line
                self._wrong(node, f"There are two steps {id_!r}; the first is on line {line}.", "Rename one.")
                continue
            ids[id_] = node
            yield self._step(id_, node, node.value, usual)

    def _id(self, node: Node, step: dict[str, Entry], number: int) -> str:
        entry = step.get("id")
        given = None if entry is None else entry.node.value
        if isinstance(given, str | int | float) and not isinstance(given, bool) and str(given).strip():
            return str(given)
        self._wrong(entry or node, f"Step {number} has no id.", "Give it one: `id: NAME`.")
        return f"#{number}"

    def _step(self, id_: str, node: Node, step: dict[str, Entry], usual: Figure) -> FlowStep:
        place = self._place(node)
        path = f"steps.{id_}"
        override = None
        if entry := step.get("timeout_override"):
            override = self._duration(f"{path}.timeout_override", entry)
        limit = override or usual
        needs = tuple(self._needs(step["needs"], path)) if "needs" in step else ()
        retrying, retries = self._retry(step["retry"], id_, limit) if "retry" in step else (None, None)
        made = Step(id_, limit, needs, place, retrying)
        return FlowStep(made, override, retries, any(key in step for key in _CALLS_MODELS))

    def _needs(self, entry: Entry, path: str) -> Iterator[Need]:
        node = entry.node
        for one in node.value if isinstance(node.value, list) else [node]:
            if isinstance(one.value, str | int) and not isinstance(one.value, bool):
                yield Need(str(one.value), self._place(one))
            elif one.value is not None or one is not node:
                self._wrong(one, f"{path}.needs must be ids of steps.", "Write them as `needs: [a, b]`.")

    def _retry(self, entry: Entry, id_: str, limit: Figure) -> tuple[Retrying | None, tuple[Figure, Figure] | None]:
        """`retry: 2`, or a mapping with the names that `[retry]` has in the settings."""
        path = f"steps.{id_}.retry"
        given = {"retries": entry} if not isinstance(entry.node.value, dict) else entry.node.value
        policy = self.settings.policy_for("").retry
        figures: dict[str, Figure] = {}
        for key, one in given.items():
            if key not in RETRY_FIGURES:
                self._wrong(one, f"{path} has no figure {key!r}.", _offer(key, RETRY_FIGURES))
                continue
            try:
                value = read(SETTINGS[f"retry.{key}"], one.node.plain())
            except Unfit as error:
                self._wrong(one, f"{path}: {error}.", "Give it such a value.")
                continue
            policy = msgspec.structs.replace(policy, **{key: value})
            name = path if one is entry else f"{path}.{key}"
            if isinstance(value, int | float):
                figures[key] = Figure(name, value, self._place(one))
        if broken := broken_rules(Policy(retry=policy)):
            self._wrong(entry, f"{path} cannot be: {'; '.join(broken)}.", "Mend these figures.")
            return None, None
        retrying = Retrying(f"step {id_!r}", limit, policy, tuple(figures.values()), place=self._place(entry))
        total = figures.get("max_attempts") or self._total(policy)
        return retrying, (figures["retries"], total) if "retries" in figures else None

    def _total(self, policy: RetryPolicy) -> Figure:
        return msgspec.structs.replace(self.settings.figure("retry.max_attempts"), value=policy.max_attempts)

    # --- small parts --------------------------------------------------------------------------------------------------

    def _entries(self, entry: Entry, path: str, example: str) -> list[tuple[str, Entry]]:
        if isinstance(entry.node.value, dict):
            return list(entry.node.value.items())
        if entry.node.value is not None:
            self._wrong(entry, f"`{path}:` must be a mapping.", f"Write names with values, {example}.")
        return []

    def _duration(self, name: str, entry: Entry) -> Figure | None:
        value = entry.node.value
        try:
            if isinstance(value, bool) or not isinstance(value, int | str):
                said = f"{name} must be milliseconds, or a duration such as 15m"
                raise Refused("bad_duration", said, where=name)  # noqa: TRY301 - said as the parser says the rest
            return Figure(name, positive(value, where=name), self._place(entry))
        except Refused as error:
            self._wrong(entry, f"{error.message}.", "Write milliseconds, or a number with ms, s, m, h or d.")
            return None

    def _strange(self, given: dict[str, Entry], known: tuple[str, ...], what: str) -> None:
        """Keys that look like one that has to do with time: a limit that is misspelt is a limit that is not there."""
        for key, entry in given.items():
            if key in known:
                continue
            meant = "timeout_override" if key == "timeout" and what == "a step" else _near(key, known)
            if meant in _TIMELY:
                self._wrong(entry, f"{key!r} is nothing that {what} has.", f"Did you mean {meant!r}?")

    def _place(self, at: Node | Entry) -> Place:
        mark = at.key if isinstance(at, Entry) else at.mark
        return Place(self.file, mark.line, mark.column)

    def _wrong(self, at: Node | Entry, says: str, fix: str) -> None:
        if len(self.findings) < _MOST_WRONG:
            self.findings.append(BAD_FLOW.broken(says, (), fix=fix, place=self._place(at)))


def _near(name: str, known: tuple[str, ...]) -> str | None:
    import difflib  # only mistakes pay for it

    found = difflib.get_close_matches(name, known, 1, cutoff=0.7)
    return found[0] if found else None


def _offer(name: str, known: tuple[str, ...]) -> str:
    near = _near(name, known)
    return f"Did you mean {near!r}?" if near else f"There are {', '.join(known)}."
