"""The parts of a step: what it does, with what, and what it leaves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from allswell.domain.snapshot import can_be_kept
from allswell.flows.complaints import INCOMPLETE, LEADS_OUT, Complaints
from allswell.flows.loading import MappingEntry, Node, Scalar
from allswell.flows.spec import MOST_STEPS, NAME, Command, Function, Output, Prompt, Step, text_of
from allswell.flows.timing import FlowStep

STEP_KEYS = (
    "id", "needs", "run", "agent", "prompt", "python", "inputs", "env", "outputs", "timeout_override", "retry",
    "verify", "audit", "matrix",
)  # fmt: skip
AUDIT_KEYS = ("run", "agent", "prompt")
_KINDS = ("run", "agent", "python")
_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", re.ASCII)
_OF_A_SHELL = frozenset(("|", "||", "&&", "&", ";", ">", ">>", "<", "<<", "2>&1", "2>"))
_OURS = "ALLSWELL_"
_VALUE = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}", re.ASCII)
"""A value in a line that is split into words: it stays one word, with or without spaces inside its braces."""


class Parts:
    """Reads the parts of steps; what is wrong with them goes to the complaints."""

    def __init__(self, complaints: Complaints) -> None:
        self.said = complaints

    def step(self, node: Node, given: Mapping[str, MappingEntry], timed: FlowStep) -> Step | None:
        """One step; None where it has nothing to do, or two things."""
        id_ = timed.step.id
        path = f"steps.{id_}"
        work = self._work(node, given, path, _KINDS)
        env = self._env(given["env"], path) if "env" in given else {}
        outputs = self._outputs(given["outputs"], path) if "outputs" in given else ()
        audit = self._audit(given["audit"], f"{path}.audit") if "audit" in given else None
        verify = self._command(given["verify"], f"{path}.verify") if "verify" in given else None
        matrix = self._matrix(given["matrix"], path) if "matrix" in given else {}
        self._check_apart(given, outputs, matrix, path)
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
            self.said.wrong(entry, f"{path} must be text.", "Write words; put them in quotes where YAML wants them.")
            return ""
        return text_of(value)

    # --- what it does -------------------------------------------------------------------------------------------------

    def _work(
        self, node: Node, given: Mapping[str, MappingEntry], path: str, kinds: tuple[str, ...]
    ) -> Command | Prompt | Function | None:
        chosen = [kind for kind in kinds if kind in given]
        if "prompt" in given and "agent" not in given:
            self.said.wrong(given["prompt"], f"{path} has a prompt and no agent.", "Name one: `agent: NAME`.")
            return None
        if "inputs" in given and chosen != ["python"]:
            fix = "Only a python step has arguments; elsewhere write {{ }} where a value belongs."
            self.said.wrong(given["inputs"], f"{path}.inputs are the arguments of a function.", fix)
        if len(chosen) > 1:
            says = f"{path} has {' and '.join(chosen)}; a step does one thing."
            self.said.wrong(given[chosen[1]], says, "Make two steps of it.")
            return None
        if not chosen:
            fix = "Give it `run: [program, argument]`, `agent:` with `prompt:`" + (
                ", or `python: module:function`." if "python" in kinds else "."
            )
            self.said.wrong(node, f"{path} has nothing to do.", fix, rule=INCOMPLETE)
            return None
        match chosen[0]:
            case "run":
                return self._command(given["run"], f"{path}.run")
            case "agent":
                return self._prompt(given, path)
            case _:
                return self._function(given, path)

    def _command(self, entry: MappingEntry, path: str) -> Command | None:
        """A list of words as they are, or a text that is split into words as a shell would, without being one."""
        value = entry.node.value
        if isinstance(value, list):
            words = [self._word(node, path) for node in value]
            if not words or not words[0]:
                self.said.wrong(entry, f"{path} is empty.", "Its first word names a program.")
            return Command(tuple(words))
        if not isinstance(value, str):
            self.said.wrong(entry, f"{path} must be a list of words, or a text.", "Write `run: [make, test]`.")
            return None
        try:
            words = shlex.split(_VALUE.sub(r"{{\1}}", value))
        except ValueError as error:
            self.said.wrong(entry, f"{path} cannot be split into words: {error}.", "Close it, or write a list.")
            return None
        if not words:
            self.said.wrong(entry, f"{path} is empty.", "Its first word names a program.")
        for word in words:
            if word in _OF_A_SHELL:
                says = f"{path} has {word!r}, which only a shell knows; it would be handed to the program as a word."
                self.said.wrong(entry, says, f"Ask for a shell: `run: [sh, -c, {value!r}]`.")
                break
        return Command(tuple(words))

    def _word(self, node: Node, path: str) -> str:
        if node.value is None or isinstance(node.value, list | dict):
            self.said.wrong(node, f"{path} must be a list of words.", "Put this one in quotes if it is meant as text.")
            return ""
        return text_of(node.value)

    def _prompt(self, given: Mapping[str, MappingEntry], path: str) -> Prompt | None:
        agent = self.text(given["agent"], f"{path}.agent")
        if "prompt" not in given:
            says = f"{path} names an agent and does not say what it shall do."
            self.said.wrong(given["agent"], says, "Add `prompt:`.", rule=INCOMPLETE)
            return None
        prompt = self.text(given["prompt"], f"{path}.prompt")
        if given["prompt"].node.value is not None and not prompt.strip():
            self.said.wrong(given["prompt"], f"{path}.prompt is empty.", "Say what the agent shall do.")
        return Prompt(agent, prompt)

    def _function(self, given: Mapping[str, MappingEntry], path: str) -> Function | None:
        entry = given["python"]
        found = _FUNCTION.fullmatch(entry.node.value) if isinstance(entry.node.value, str) else None
        if found is None:
            self.said.wrong(entry, f"{path}.python must be `module:function`.", "Write such as `jobs.report:build`.")
            return None
        inputs: dict[str, object] = {}
        if "inputs" in given:
            for name, one in self.said.mapping(given["inputs"], f"{path}.inputs", "such as `limit: 5`").items():
                if not NAME.fullmatch(name):
                    self.said.wrong(one, f"{name!r} cannot name an argument.", "Use letters, digits and '_'.")
                inputs[name] = one.node.plain()
        return Function(found[1], found[2], inputs)

    def _audit(self, entry: MappingEntry, path: str) -> Command | Prompt | None:
        value = entry.node.value
        if not isinstance(value, dict):
            return self._command(entry, path)
        self.said.known(value, AUDIT_KEYS, "an audit")
        work = self._work(entry.node, value, path, ("run", "agent"))
        return None if isinstance(work, Function) else work

    # --- with what, and what it leaves --------------------------------------------------------------------------------

    def _env(self, entry: MappingEntry, path: str) -> dict[str, str]:
        env = {}
        for name, one in self.said.mapping(entry, f"{path}.env", "such as `LEVEL: 3`").items():
            if not NAME.fullmatch(name):
                self.said.wrong(one, f"{name!r} cannot name a variable.", "Use letters, digits and '_'.")
            elif name.startswith(_OURS):
                self.said.wrong(one, f"{name!r} is Allswell's own.", f"Choose a name that does not begin with {_OURS}.")
            env[name] = "" if one.node.value is None else self.text(one, f"{path}.env.{name}")
        return env

    def _outputs(self, entry: MappingEntry, path: str) -> tuple[Output, ...]:
        """Names with paths, or paths alone, which then are their own names."""
        value = entry.node.value
        if isinstance(value, dict):
            for name, one in value.items():
                if not NAME.fullmatch(name):
                    self.said.wrong(one, f"{name!r} cannot name an output.", "Use letters, digits and '_'.")
            found = [Output(name, self._path(one.node, path)) for name, one in value.items()]
        else:
            nodes = value if isinstance(value, list) else [entry.node]
            found = [Output(where, where) for where in (self._path(node, path) for node in nodes)]
        paths = [output.path for output in found]
        if double := next((one for place, one in enumerate(paths) if one in paths[:place]), None):
            self.said.wrong(entry, f"{path}.outputs has {double!r} twice.", "Keep one.")
        return tuple(found)

    def _check_apart(
        self, given: Mapping[str, MappingEntry], outputs: tuple[Output, ...], matrix: Mapping[str, object], path: str
    ) -> None:
        """Members of a matrix leave files of their own, or each would find another's."""
        for output in outputs:
            missing = [axis for axis in matrix if f"matrix.{axis}" not in output.path]
            if missing:
                says = f"{path}.outputs: several members of the matrix would write {output.path!r}."
                fix = f"Name every axis in it, such as {{{{ matrix.{missing[0]} }}}}."
                self.said.wrong(given["outputs"], says, fix)

    def _path(self, node: Node, path: str) -> str:
        value = node.value
        if not isinstance(value, str) or not value:
            self.said.wrong(node, f"{path}.outputs must be paths of files.", "Write such as `dist/report.md`.")
            return ""
        if why := outside(value):
            self.said.wrong(node, f"The output {value!r} {why}.", "Let the step write it below the flow's folder.")
        elif (found := linked_to(Path.cwd(), value)) is not None:
            says = (
                f"The output {value!r} is a link, or lies behind one, that leads out of the flow's folder, to {found}."
            )
            self.said.wrong(node, says, "Take the link away: a step that ends so has failed.", rule=LEADS_OUT)
        return value

    def _matrix(self, entry: MappingEntry, path: str) -> dict[str, tuple[Scalar, ...]]:
        axes: dict[str, tuple[Scalar, ...]] = {}
        total = 1
        for axis, one in self.said.mapping(entry, f"{path}.matrix", "such as `python: ['3.11', '3.12']`").items():
            if not NAME.fullmatch(axis):
                self.said.wrong(one, f"{axis!r} cannot name an axis of a matrix.", "Use letters, digits and '_'.")
            axes[axis] = self._axis(one, f"{path}.matrix.{axis}")
            total *= max(len(axes[axis]), 1)
        if not axes and isinstance(entry.node.value, dict | None):
            self.said.wrong(entry, f"{path}.matrix is empty.", "Name an axis with its values, or take it away.")
        if total > MOST_STEPS:
            says = f"{path}.matrix has {total:,} members; a flow may come to {MOST_STEPS:,} steps."
            self.said.wrong(entry, says, "Make it smaller.")
        return axes

    def _axis(self, entry: MappingEntry, path: str) -> tuple[Scalar, ...]:
        value = entry.node.value
        if not isinstance(value, list) or not value:
            self.said.wrong(entry, f"{path} must be a list of values.", "Write such as `[a, b]`.")
            return ()
        known: set[str] = set()
        found: list[Scalar] = []
        for node in value:
            if node.value is None or isinstance(node.value, list | dict):
                self.said.wrong(node, f"{path} must be texts, numbers, true or false.", "Write one value.")
                continue
            if text_of(node.value) in known:
                self.said.wrong(node, f"{path} has {node.value!r} twice.", "Keep one.")
            known.add(text_of(node.value))
            found.append(node.value)
        return tuple(found)


def linked_to(folder: Path, path: str) -> Path | None:
    """Where a path leads to outside the folder in which a flow runs; None if it stays inside, or is not there yet."""
    try:
        found = (folder / path).resolve()
        return None if found.is_relative_to(folder.resolve()) else found
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
