"""Reads a parsed flow file into a `Flow`, and checks every key, its shape, and what it refers to.

Nothing is guessed: a key that is unknown, a value of the wrong shape, a step that does nothing or two things at once,
and a `{{ }}` whose value cannot be there when it is needed are mistakes, each told with its line and column. A file is
read to its end, so that one look shows them all; only a file without any becomes a `Flow`.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from allswell.domain.check.model import CheckFigure, Finding
from allswell.domain.check.retries import Retrying
from allswell.domain.check.scopes import Need, StepFigures
from allswell.domain.receipts.snapshot import can_be_kept
from allswell.domain.scopes import ScopeKind, Timeouts, positive
from allswell.domain.service.retry import RetryPolicy
from allswell.domain.task.model import Policy, broken_rules
from allswell.errors import Refused
from allswell.flows.loader import INCOMPLETE, LEADS_OUT, MappingEntry, Scalar, YamlNode, YamlProblems, offer
from allswell.flows.spec import (
    FLOW_NAME,
    MOST_STEPS,
    NAME,
    OF_RUN,
    OF_STEP,
    OPEN,
    STEP_ID,
    AgentPrompt,
    BadTemplate,
    Flow,
    Function,
    InputSpec,
    OutputSpec,
    RunCommand,
    Step,
    ValueReference,
    parse,
    references,
    text_of,
)
from allswell.settings.check import RETRY_FIGURES
from allswell.settings.schema import SETTINGS
from allswell.settings.settings import Settings
from allswell.settings.values import InvalidValue

# The figures of a flow file: `timeouts:`, and of each step `timeout_override` and `retry` (F12).
#
# Every mistake is a finding with its place. What the file does not say comes from the settings.

_CALLS_MODELS = ("agent", "python")


class FlowStep(msgspec.Struct, frozen=True):
    """The limits, needs and retries of a step, and what the check of limits asks about it."""

    step: StepFigures
    override: CheckFigure | None
    retry: RetryPolicy | None
    """Its own, where it says something of retries."""
    retries: tuple[CheckFigure, CheckFigure] | None
    """Its own number of retries and the total it must keep to, where it has such a number."""
    calls_models: bool
    verifies: bool
    """Whether its work is verified, within its limit."""


class TimeReader:
    """Reads what a file says about time."""

    def __init__(self, problems: YamlProblems, settings: Settings) -> None:
        self._problems = problems
        self._settings = settings

    def timeouts(self, entry: MappingEntry | None) -> dict[ScopeKind, CheckFigure]:
        """The limits of the flow's scopes: the file's, and the settings' for the rest."""
        usual = {kind: self._settings.figure(f"timeouts.{kind}") for kind in ScopeKind}
        return usual if entry is None else usual | dict(self._limits_in(entry))

    def _limits_in(self, entry: MappingEntry) -> Iterator[tuple[ScopeKind, CheckFigure]]:
        kinds = tuple(kind.value for kind in ScopeKind)
        for name, limit in self._problems.mapping(entry, "timeouts", "such as `step: 10m`").items():
            if name not in kinds:
                self._problems.wrong(limit, f"There is no scope {name!r}.", offer(name, kinds))
            elif figure := self._duration(f"timeouts.{name}", limit):
                yield ScopeKind(name), figure

    def step(self, id_: str, node: YamlNode, entries: dict[str, MappingEntry], usual: CheckFigure) -> FlowStep:
        """One step's figures and needs."""
        override = None
        if entry := entries.get("timeout_override"):
            override = self._duration(f"steps.{id_}.timeout_override", entry)
        limit = override or usual
        needs = tuple(self._needs(entries["needs"], f"steps.{id_}")) if "needs" in entries else ()
        policy, retrying, retries = None, None, None
        if "retry" in entries:
            policy, retrying, retries = self._retry(entries["retry"], id_, limit)
        made = StepFigures(id_, limit, needs, self._problems.place(node), retrying)
        calls_models = any(key in entries for key in _CALLS_MODELS)
        return FlowStep(made, override, policy, retries, calls_models, "verify" in entries)

    def _needs(self, entry: MappingEntry, path: str) -> Iterator[Need]:
        node = entry.node
        for item in node.value if isinstance(node.value, list) else [node]:
            if isinstance(item.value, str | int) and not isinstance(item.value, bool):
                yield Need(str(item.value), self._problems.place(item))
            elif item.value is not None or item is not node:
                self._problems.wrong(item, f"{path}.needs must be ids of steps.", "Write them as `needs: [a, b]`.")

    def _retry(
        self, entry: MappingEntry, id_: str, limit: CheckFigure
    ) -> tuple[RetryPolicy | None, Retrying | None, tuple[CheckFigure, CheckFigure] | None]:
        """`retry: 2`, or a mapping with the names that `[retry]` has in the settings."""
        path = f"steps.{id_}.retry"
        entries = {"retries": entry} if not isinstance(entry.node.value, dict) else entry.node.value
        policy = self._settings.policy_for("").retry
        figures: dict[str, CheckFigure] = {}
        for key, figure in entries.items():
            if key not in RETRY_FIGURES:
                self._problems.wrong(figure, f"{path} has no figure {key!r}.", offer(key, RETRY_FIGURES))
                continue
            try:
                value = SETTINGS[f"retry.{key}"].read(figure.node.plain())
            except InvalidValue as error:
                self._problems.wrong(figure, f"{path}: {error}.", "Give it such a value.")
                continue
            policy = msgspec.structs.replace(policy, **{key: value})
            name = path if figure is entry else f"{path}.{key}"
            if isinstance(value, int | float):
                figures[key] = CheckFigure(name, value, self._problems.place(figure))
        if broken := broken_rules(Policy(retry=policy)):
            self._problems.wrong(
                entry, f"{path} cannot be: {'; '.join(rule.says for rule in broken)}.", "Correct these figures."
            )
            return None, None, None
        place = self._problems.place(entry)
        retrying = Retrying(f"step {id_!r}", limit, policy, tuple(figures.values()), place=place)
        total = figures.get("max_attempts") or self._total(policy)
        return policy, retrying, (figures["retries"], total) if "retries" in figures else None

    def _total(self, policy: RetryPolicy) -> CheckFigure:
        return msgspec.structs.replace(self._settings.figure("retry.max_attempts"), value=policy.max_attempts)

    def _duration(self, name: str, entry: MappingEntry) -> CheckFigure | None:
        value = entry.node.value
        try:
            if isinstance(value, bool) or not isinstance(value, int | str):
                says = f"{name} must be milliseconds, or a duration such as 15m"
                raise Refused("bad_duration", says, where=name)  # noqa: TRY301 - said as the parser says the rest
            return CheckFigure(name, positive(value, where=name), self._problems.place(entry))
        except Refused as error:
            self._problems.wrong(entry, f"{error.message}.", "Write milliseconds, or a number with ms, s, m, h or d.")
            return None


# The parts of a step: what it does, with what, and what it leaves.

STEP_KEYS = (
    "id", "needs", "run", "agent", "prompt", "python", "inputs", "env", "outputs", "timeout_override", "retry",
    "verify", "audit", "matrix",
)  # fmt: skip
AUDIT_KEYS = ("run", "agent", "prompt")
_KINDS = ("run", "agent", "python")
_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", re.ASCII)
_OF_A_SHELL = frozenset(("|", "||", "&&", "&", ";", ">", ">>", "<", "<<", "2>&1", "2>"))
_OURS = "ALLSWELL_"
_INTERPRETER = re.compile(r"(?:ba|da|z|k|a|c|tc|fi)?sh|(?:python|pypy|perl|ruby|node)[\d.]*", re.ASCII)
_SCRIPT_FOLLOWS = re.compile(r"-[A-Za-z]*[ceE]|--(?:eval|command)", re.ASCII)
"""The options of shells and interpreters after which the next word is a script."""
_PRINTED = re.compile(r"\{\{\s*steps\.[\w-]+\.(?:stdout|result)[\w.-]*\s*\}\}", re.ASCII)
"""A value that a step has made."""
_VALUE = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}", re.ASCII)
"""A value in a line that is split into words: it stays one word, with or without spaces inside its braces."""


def _scripts(words: list[str]) -> Iterator[str]:
    """The words of a command that a shell or an interpreter will read as a script."""
    for place, program in enumerate(words):
        if not _INTERPRETER.fullmatch(program.rpartition("/")[2]):
            continue
        options = iter(words[place + 1 :])
        for option in options:
            if _SCRIPT_FOLLOWS.fullmatch(option):
                yield next(options, "")
            elif option in ("-o", "-O", "+o", "+O"):
                next(options, "")
            elif not option.startswith("-"):
                break


class StepPartsReader:
    """Reads the parts of steps; what is wrong with them goes to the problems."""

    def __init__(self, problems: YamlProblems) -> None:
        self.problems = problems

    def step(self, node: YamlNode, entries: Mapping[str, MappingEntry], timed: FlowStep) -> Step | None:
        """One step; None where it has nothing to do, or two things."""
        id_ = timed.step.id
        path = f"steps.{id_}"
        work = self._work(node, entries, path, _KINDS)
        env = self._env(entries["env"], path) if "env" in entries else {}
        outputs = self._outputs(entries["outputs"], path) if "outputs" in entries else ()
        audit = self._audit(entries["audit"], f"{path}.audit") if "audit" in entries else None
        verify = self._command(entries["verify"], f"{path}.verify") if "verify" in entries else None
        matrix = self._matrix(entries["matrix"], path) if "matrix" in entries else {}
        self._check_apart(entries, outputs, matrix, path)
        if work is None:
            return None
        override = None if timed.override is None else timed.override.length
        needs = tuple(dict.fromkeys(need.step for need in timed.step.needs))
        return Step(id_, work, needs, env, outputs, override, timed.retry, audit, matrix, verify)

    def text(self, entry: MappingEntry, path: str) -> str:
        """What must be text; a number is one, too."""
        value = entry.node.value
        if isinstance(value, str):
            return value
        if value is None or isinstance(value, bool | list | dict):
            self.problems.wrong(
                entry, f"{path} must be text.", "Write words; put them in quotes where YAML wants them."
            )
            return ""
        return text_of(value)

    # --- what it does -------------------------------------------------------------------------------------------------

    def _work(
        self, node: YamlNode, entries: Mapping[str, MappingEntry], path: str, kinds: tuple[str, ...]
    ) -> RunCommand | AgentPrompt | Function | None:
        chosen = [kind for kind in kinds if kind in entries]
        if "prompt" in entries and "agent" not in entries:
            self.problems.wrong(entries["prompt"], f"{path} has a prompt and no agent.", "Name one: `agent: NAME`.")
            return None
        if "inputs" in entries and chosen != ["python"]:
            fix = "Only a python step has arguments; elsewhere write {{ }} where a value belongs."
            self.problems.wrong(entries["inputs"], f"{path}.inputs are the arguments of a function.", fix)
        if len(chosen) > 1:
            says = f"{path} has {' and '.join(chosen)}; a step does one thing."
            self.problems.wrong(entries[chosen[1]], says, "Make two steps of it.")
            return None
        if not chosen:
            fix = "Give it `run: [program, argument]`, `agent:` with `prompt:`" + (
                ", or `python: module:function`." if "python" in kinds else "."
            )
            self.problems.wrong(node, f"{path} has nothing to do.", fix, rule=INCOMPLETE)
            return None
        match chosen[0]:
            case "run":
                return self._command(entries["run"], f"{path}.run")
            case "agent":
                return self._prompt(entries, path)
            case _:
                return self._function(entries, path)

    def _command(self, entry: MappingEntry, path: str) -> RunCommand | None:
        """A list of words as they are, or a text that is split into words as a shell would, without being one."""
        value = entry.node.value
        if isinstance(value, list):
            words = [self._word(node, path) for node in value]
            if not words or not words[0]:
                self.problems.wrong(entry, f"{path} is empty.", "Its first word names a program.")
            self._check_scripts(entry, path, words)
            return RunCommand(tuple(words))
        if not isinstance(value, str):
            self.problems.wrong(entry, f"{path} must be a list of words, or a text.", "Write `run: [make, test]`.")
            return None
        try:
            words = shlex.split(_VALUE.sub(r"{{\1}}", value))
        except ValueError as error:
            self.problems.wrong(entry, f"{path} cannot be split into words: {error}.", "Close it, or write a list.")
            return None
        if not words:
            self.problems.wrong(entry, f"{path} is empty.", "Its first word names a program.")
        for word in words:
            if word in _OF_A_SHELL:
                says = f"{path} has {word!r}, which only a shell knows; it would be handed to the program as a word."
                self.problems.wrong(entry, says, f"Ask for a shell: `run: [sh, -c, {value!r}]`.")
                break
        self._check_scripts(entry, path, words)
        return RunCommand(tuple(words))

    def _check_scripts(self, entry: MappingEntry, path: str, words: list[str]) -> None:
        """Refuse what a step printed within a script: an agent that printed it would have written the script."""
        value = next((printed for script in _scripts(words) if (printed := _PRINTED.search(script))), None)
        if value is not None:
            says = f"{path} has {value[0]} within a script: what was printed would be run as a part of it."
            hand = f"[sh, -c, 'echo \"$1\"', sh, '{value[0]}']"
            self.problems.wrong(entry, says, f"Hand it over as a word of its own: `{hand}`; or by `env:`.")

    def _word(self, node: YamlNode, path: str) -> str:
        if node.value is None or isinstance(node.value, list | dict):
            self.problems.wrong(
                node, f"{path} must be a list of words.", "Put this one in quotes if it is meant as text."
            )
            return ""
        return text_of(node.value)

    def _prompt(self, entries: Mapping[str, MappingEntry], path: str) -> AgentPrompt | None:
        agent = self.text(entries["agent"], f"{path}.agent")
        if "prompt" not in entries:
            says = f"{path} names an agent and does not say what it shall do."
            self.problems.wrong(entries["agent"], says, "Add `prompt:`.", rule=INCOMPLETE)
            return None
        prompt = self.text(entries["prompt"], f"{path}.prompt")
        if entries["prompt"].node.value is not None and not prompt.strip():
            self.problems.wrong(entries["prompt"], f"{path}.prompt is empty.", "Say what the agent shall do.")
        return AgentPrompt(agent, prompt)

    def _function(self, entries: Mapping[str, MappingEntry], path: str) -> Function | None:
        entry = entries["python"]
        match = _FUNCTION.fullmatch(entry.node.value) if isinstance(entry.node.value, str) else None
        if match is None:
            self.problems.wrong(
                entry, f"{path}.python must be `module:function`.", "Write such as `jobs.report:build`."
            )
            return None
        inputs: dict[str, object] = {}
        if "inputs" in entries:
            for name, argument in self.problems.mapping(
                entries["inputs"], f"{path}.inputs", "such as `limit: 5`"
            ).items():
                if not NAME.fullmatch(name):
                    self.problems.wrong(argument, f"{name!r} cannot name an argument.", "Use letters, digits and '_'.")
                inputs[name] = argument.node.plain()
        return Function(match[1], match[2], inputs)

    def _audit(self, entry: MappingEntry, path: str) -> RunCommand | AgentPrompt | None:
        value = entry.node.value
        if not isinstance(value, dict):
            return self._command(entry, path)
        self.problems.known(value, AUDIT_KEYS, "an audit")
        work = self._work(entry.node, value, path, ("run", "agent"))
        return None if isinstance(work, Function) else work

    # --- with what, and what it leaves --------------------------------------------------------------------------------

    def _env(self, entry: MappingEntry, path: str) -> dict[str, str]:
        env = {}
        for name, variable in self.problems.mapping(entry, f"{path}.env", "such as `LEVEL: 3`").items():
            if not NAME.fullmatch(name):
                self.problems.wrong(variable, f"{name!r} cannot name a variable.", "Use letters, digits and '_'.")
            elif name.startswith(_OURS):
                self.problems.wrong(
                    variable, f"{name!r} is Allswell's own.", f"Choose a name that does not begin with {_OURS}."
                )
            env[name] = "" if variable.node.value is None else self.text(variable, f"{path}.env.{name}")
        return env

    def _outputs(self, entry: MappingEntry, path: str) -> tuple[OutputSpec, ...]:
        """Names with paths, or paths alone, which then are their own names."""
        value = entry.node.value
        if isinstance(value, dict):
            for name, named in value.items():
                if not NAME.fullmatch(name):
                    self.problems.wrong(named, f"{name!r} cannot name an output.", "Use letters, digits and '_'.")
            outputs = [OutputSpec(name, self._path(named.node, path)) for name, named in value.items()]
        else:
            nodes = value if isinstance(value, list) else [entry.node]
            outputs = [OutputSpec(where, where) for where in (self._path(node, path) for node in nodes)]
        paths = [output.path for output in outputs]
        if double := next((output for place, output in enumerate(paths) if output in paths[:place]), None):
            self.problems.wrong(entry, f"{path}.outputs has {double!r} twice.", "Keep one.")
        return tuple(outputs)

    def _check_apart(
        self,
        entries: Mapping[str, MappingEntry],
        outputs: tuple[OutputSpec, ...],
        matrix: Mapping[str, object],
        path: str,
    ) -> None:
        """Each member of a matrix must write files of its own, or it would overwrite those of another."""
        for output in outputs:
            missing = [axis for axis in matrix if f"matrix.{axis}" not in output.path]
            if missing:
                says = f"{path}.outputs: several members of the matrix would write {output.path!r}."
                fix = f"Name every axis in it, such as {{{{ matrix.{missing[0]} }}}}."
                self.problems.wrong(entries["outputs"], says, fix)

    def _path(self, node: YamlNode, path: str) -> str:
        value = node.value
        if not isinstance(value, str) or not value:
            self.problems.wrong(node, f"{path}.outputs must be paths of files.", "Write such as `dist/report.md`.")
            return ""
        if why := outside(value):
            self.problems.wrong(node, f"The output {value!r} {why}.", "Let the step write it below the flow's folder.")
        elif (target := linked_to(Path.cwd(), value)) is not None:
            says = (
                f"The output {value!r} is a link, or lies behind one, that leads out of the flow's folder, to {target}."
            )
            self.problems.wrong(node, says, "Take the link away: a step that ends so has failed.", rule=LEADS_OUT)
        return value

    def _matrix(self, entry: MappingEntry, path: str) -> dict[str, tuple[Scalar, ...]]:
        axes: dict[str, tuple[Scalar, ...]] = {}
        total = 1
        for axis, values in self.problems.mapping(
            entry, f"{path}.matrix", "such as `python: ['3.11', '3.12']`"
        ).items():
            if not NAME.fullmatch(axis):
                self.problems.wrong(
                    values, f"{axis!r} cannot name an axis of a matrix.", "Use letters, digits and '_'."
                )
            axes[axis] = self._axis(values, f"{path}.matrix.{axis}")
            total *= max(len(axes[axis]), 1)
        if not axes and isinstance(entry.node.value, dict | None):
            self.problems.wrong(entry, f"{path}.matrix is empty.", "Name an axis with its values, or take it away.")
        if total > MOST_STEPS:
            says = f"{path}.matrix has {total:,} members; a flow may come to {MOST_STEPS:,} steps."
            self.problems.wrong(entry, says, "Make it smaller.")
        return axes

    def _axis(self, entry: MappingEntry, path: str) -> tuple[Scalar, ...]:
        value = entry.node.value
        if not isinstance(value, list) or not value:
            self.problems.wrong(entry, f"{path} must be a list of values.", "Write such as `[a, b]`.")
            return ()
        known: set[str] = set()
        scalars: list[Scalar] = []
        for node in value:
            if node.value is None or isinstance(node.value, list | dict):
                self.problems.wrong(node, f"{path} must be texts, numbers, true or false.", "Write one value.")
                continue
            if text_of(node.value) in known:
                self.problems.wrong(node, f"{path} has {node.value!r} twice.", "Keep one.")
            known.add(text_of(node.value))
            scalars.append(node.value)
        return tuple(scalars)


def linked_to(folder: Path, path: str) -> Path | None:
    """Where a path leads to outside the folder in which a flow runs; None if it stays inside, or is not there yet."""
    try:
        target = (folder / path).resolve()
        return None if target.is_relative_to(folder.resolve()) else target
    except (OSError, ValueError, RuntimeError):  # no path at all, or links in a circle
        return None


def outside(path: str) -> str | None:
    """Why a path is not one of the flow's own files; None if it is."""
    if "\0" in path or not path.isprintable():
        return "has characters that no path should have"
    pure = PurePosixPath(path)
    if pure.is_absolute() or path.startswith("~"):
        return "lies outside the run: it does not begin in the flow's folder"
    if ".." in pure.parts:
        return "lies outside the run: it leads out of the flow's folder by '..'"
    if not can_be_kept(str(pure).encode()):
        return "is not a file of the flow's: .git and .allswell are not for steps to write"
    return None


# Whether every `{{ }}` of a flow will have its value when the step that uses it begins.

_ALWAYS = ("id", "needs", "timeout_override", "retry")
"""Parts of a step in which no value can stand."""


def check_uses(flow: Flow, nodes: Mapping[str, YamlNode], problems: YamlProblems) -> None:
    """Complain of every value that is unknown, and of every step whose values are used without being needed."""
    steps = {step.id: step for step in flow.steps}
    inputs = [declared.name for declared in flow.inputs]
    before = _EndedBefore(steps)
    for step in flow.steps:
        entries = nodes[step.id].value
        if not isinstance(entries, dict):
            continue
        for key, entry in entries.items():
            for node in () if key in _ALWAYS else _texts(entry.node):
                for reference, why in _found(str(node.value)):
                    wrong = why or _wrong(reference, step, steps, inputs, before)
                    if wrong is not None:
                        says, fix = wrong
                        problems.wrong(node, f"steps.{step.id}.{key}: {says}.", fix)


def _texts(node: YamlNode) -> Iterator[YamlNode]:
    """Every text below a node that may hold a value."""
    if isinstance(node.value, str):
        if OPEN in node.value:
            yield node
    elif isinstance(node.value, list):
        for inner in node.value:
            yield from _texts(inner)
    elif isinstance(node.value, dict):
        for entry in node.value.values():
            yield from _texts(entry.node)


def _found(text: str) -> Iterator[tuple[ValueReference | None, tuple[str, str] | None]]:
    try:
        template = parse(text)
    except BadTemplate as error:
        yield None, (str(error), "`allswell help flows` lists what is allowed there.")
        return
    for reference in references(template):
        yield reference, None


def _wrong(
    reference: ValueReference | None, step: Step, steps: Mapping[str, Step], inputs: list[str], before: _EndedBefore
) -> tuple[str, str] | None:
    if reference is None:
        return None
    name = reference.path[0]
    match reference.root:
        case "inputs" if name not in inputs:
            return f"there is no input {name!r}", offer(name, inputs) if inputs else "Declare it under `inputs:`."
        case "matrix" if name not in step.matrix:
            return f"its matrix has no axis {name!r}", offer(name, list(step.matrix)) if step.matrix else "It has none."
        case "run" if name not in OF_RUN:
            return f"a run has no {name!r}", offer(name, OF_RUN)
        case "steps":
            return _of_step(reference, step, steps, before)
        case _:
            pass
    if len(reference.path) > 1:
        return f"{reference} goes too deep", f"Write {{{{ {reference.root}.{name} }}}}."
    return None


def _of_step(
    reference: ValueReference, step: Step, steps: Mapping[str, Step], before: _EndedBefore
) -> tuple[str, str] | None:
    name, *rest = reference.path
    other = steps.get(name)
    if other is None:
        return f"there is no step {name!r}", offer(name, list(steps))
    if not before.reaches(step.id, name):
        return f"it uses {reference} and does not need step {name!r}", f"Add {name!r} to its needs."
    if not rest or rest[0] not in OF_STEP:
        value = rest[0] if rest else ""
        return f"a step gives no {value!r}", f"There are {', '.join(f'{name}.{part}' for part in OF_STEP)}."
    if rest[0] == "outputs":
        named = [output.name for output in other.outputs if output.name != output.path]
        if len(rest) != 2 or rest[1] not in named:
            fix = (
                offer(rest[1], named) if len(rest) > 1 and named else "Give its outputs names: `outputs: {NAME: path}`."
            )
            return f"step {name!r} has no such output", fix
    elif rest[0] != "result" and len(rest) > 1:
        return f"{reference} goes too deep", f"Write {{{{ steps.{name}.{rest[0]} }}}}."
    elif rest[0] == "result" and isinstance(other.work, RunCommand):
        return f"step {name!r} is a command, which returns nothing", f"Write {{{{ steps.{name}.stdout }}}}."
    elif rest[0] in ("stdout", "exit_code") and isinstance(other.work, Function):
        return f"step {name!r} is a function, which prints nothing here", f"Write {{{{ steps.{name}.result }}}}."
    return None


class _EndedBefore:
    """Which steps have ended when a step begins: those that it needs, and those that they need."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self._needs = {id_: [need for need in step.needs if need in steps] for id_, step in steps.items()}

    def reaches(self, id_: str, other: str) -> bool:
        """Whether a step has ended when this one begins; looked for along its needs, the nearest first."""
        seen = {id_}
        pending = deque([id_])
        while pending:
            for need in self._needs[pending.popleft()]:
                if need == other:
                    return True
                if need not in seen:
                    seen.add(need)
                    pending.append(need)
        return False


TOP_KEYS = ("name", "description", "inputs", "timeouts", "steps")
_INPUT_KEYS = ("default", "description")


class FlowReading(msgspec.Struct, frozen=True):
    """What was read from a flow file: its limits, its steps, and the mistakes in it. `_Reader` makes it."""

    timeouts: dict[ScopeKind, CheckFigure]
    steps: tuple[FlowStep, ...]
    findings: tuple[Finding, ...]
    flow: Flow | None
    """None where the file has mistakes; whether its limits fit together is checked later (`flows/schema.py`)."""


def read_flow(root: YamlNode, file: str, settings: Settings) -> FlowReading:
    """Read a flow file; the mistakes in it are findings."""
    return _Reader(file, settings).read(root)


class _Reader:
    def __init__(self, file: str, settings: Settings) -> None:
        self.problems = YamlProblems(file)
        self.figures = TimeReader(self.problems, settings)
        self.parts = StepPartsReader(self.problems)
        self.steps: list[Step] = []
        self.timed: list[FlowStep] = []

    def read(self, root: YamlNode) -> FlowReading:
        """Everything that the file says."""
        top = root.value
        if not isinstance(top, dict) or not {"timeouts", "steps"} & top.keys():
            self.problems.wrong(
                root, "This is not a flow: it has neither `timeouts:` nor `steps:`.", "Name a flow file."
            )
            return FlowReading(self.figures.timeouts(None), (), tuple(self.problems.findings), None)
        self.problems.known(top, TOP_KEYS, "a flow")
        timeouts = self.figures.timeouts(top.get("timeouts"))
        name = self._name(top.get("name"))
        description = self.parts.text(top["description"], "description") if "description" in top else ""
        inputs = self._inputs(top.get("inputs"))
        nodes = self._steps(top.get("steps"), root, timeouts[ScopeKind.STEP])
        flow = None
        if not self.problems.mistakes:
            limits = Timeouts(**{kind.value: timeouts[kind].length for kind in ScopeKind})
            flow = Flow(name, limits, tuple(self.steps), inputs, description)
            check_uses(flow, nodes, self.problems)
            self._check_size(flow, nodes)
        findings = tuple(self.problems.findings)
        return FlowReading(timeouts, tuple(self.timed), findings, None if self.problems.mistakes else flow)

    def _name(self, entry: MappingEntry | None) -> str:
        if entry is None:
            stem = PurePosixPath(self.problems.file).stem
            return stem if FLOW_NAME.fullmatch(stem) else "flow"
        name = entry.node.value
        if isinstance(name, str) and FLOW_NAME.fullmatch(name):
            return name
        self.problems.wrong(
            entry, "`name:` must be letters, digits, '_', '-' and '.'.", "It names a folder: at most 64."
        )
        return "flow"

    # --- inputs -------------------------------------------------------------------------------------------------------

    def _inputs(self, entry: MappingEntry | None) -> tuple[InputSpec, ...]:
        if entry is None:
            return ()
        entries = self.problems.mapping(entry, "inputs", "such as `branch: main`")
        return tuple(self._input(name, default) for name, default in entries.items())

    def _input(self, name: str, entry: MappingEntry) -> InputSpec:
        """`branch: main` has a default, `branch:` has none and must be given; a mapping can describe it."""
        path = f"inputs.{name}"
        if not NAME.fullmatch(name):
            self.problems.wrong(entry, f"{name!r} cannot name an input.", "Use letters, digits and '_'.")
        value = entry.node.value
        if isinstance(value, list):
            self.problems.wrong(entry, f"{path} must be a text, a number, true or false.", "Write its default.")
            return InputSpec(name)
        if not isinstance(value, dict):
            return InputSpec(name, value, required=value is None)
        self.problems.known(value, _INPUT_KEYS, "an input")
        description = self.parts.text(value["description"], f"{path}.description") if "description" in value else ""
        if "default" not in value:
            return InputSpec(name, None, required=True, description=description)
        default = value["default"].node.value
        if isinstance(default, list | dict):
            self.problems.wrong(
                value["default"], f"{path}.default must be a text, a number, true or false.", "Write one."
            )
            default = None
        return InputSpec(name, default, required=False, description=description)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _steps(self, entry: MappingEntry | None, root: YamlNode, usual: CheckFigure) -> dict[str, YamlNode]:
        """Read every step into `steps` and `timed`; return the node of each, by id."""
        if entry is None or entry.node.value in (None, []):
            self.problems.wrong(entry or root, "The flow has no steps.", "Begin with `- id: NAME`.", rule=INCOMPLETE)
            return {}
        if not isinstance(entry.node.value, list):
            self.problems.wrong(entry, "`steps:` must be a list.", "Begin each step with `- id: NAME`.")
            return {}
        nodes: dict[str, YamlNode] = {}
        for number, node in enumerate(entry.node.value, 1):
            if not isinstance(node.value, dict):
                self.problems.wrong(node, f"Step {number} must be a mapping.", "Begin it with `- id: NAME`.")
                continue
            self.problems.known(node.value, STEP_KEYS, "a step")
            id_ = self._id(node, node.value, number)
            if id_ in nodes:
                line = nodes[id_].mark.line
                self.problems.wrong(node, f"There are two steps {id_!r}; the first is on line {line}.", "Rename one.")
                continue
            nodes[id_] = node
            timed = self.figures.step(id_, node, node.value, usual)
            self.timed.append(timed)
            if made := self.parts.step(node, node.value, timed):
                self.steps.append(made)
        return nodes

    def _id(self, node: YamlNode, step: dict[str, MappingEntry], number: int) -> str:
        entry = step.get("id")
        value = None if entry is None else entry.node.value
        if entry is None or isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
            self.problems.wrong(entry or node, f"Step {number} has no id.", "Give it one: `id: NAME`.")
            return f"#{number}"
        if not STEP_ID.fullmatch(str(value)):
            says = f"{str(value)!r} cannot be the id of a step."
            self.problems.wrong(entry, says, "Use at most 64 letters, digits, '_' and '-': it names files and values.")
        return str(value)

    def _check_size(self, flow: Flow, nodes: dict[str, YamlNode]) -> None:
        total = 0
        for step in flow.steps:
            total += step.count()
            if total > MOST_STEPS:
                says = f"With step {step.id!r} the flow comes to more than {MOST_STEPS:,} steps."
                self.problems.wrong(nodes[step.id], says, "Make its matrix smaller, or split the flow.")
                return
