"""What is wrong with a flow file, collected with places, so that one look at it shows every mistake."""

from __future__ import annotations

from collections.abc import Collection

from allswell.domain.arithmetic.figure import Place
from allswell.domain.arithmetic.finding import Finding, Rule, Severity
from allswell.domain.meant import nearest
from allswell.flows.loading import MappingEntry, Node

BAD_FLOW = Rule("bad_flow", Severity.ERROR, "A flow file can be read, and its figures are figures.")
INCOMPLETE = Rule("incomplete", Severity.ERROR, "A flow has steps, and each of them something to do.")
LEADS_OUT = Rule("leads_out", Severity.ERROR, "What a step leaves lies in the flow's folder, through links too.")

_MOST_WRONG = 100
"""So many mistakes are told; a file with more is another kind of file."""


class Complaints:
    """The mistakes found in one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []

    @property
    def mistakes(self) -> bool:
        """Whether something is wrong with the file itself; a link beside it may be gone when its step ends."""
        return any(finding.rule != LEADS_OUT.id for finding in self.findings)

    def place(self, at: Node | MappingEntry) -> Place:
        """Where something stands: an entry at its key."""
        mark = at.key if isinstance(at, MappingEntry) else at.mark
        return Place(self.file, mark.line, mark.column)

    def wrong(self, at: Node | MappingEntry, says: str, fix: str, *, rule: Rule = BAD_FLOW) -> None:
        """Note a mistake."""
        if len(self.findings) < _MOST_WRONG:
            self.findings.append(rule.broken(says, (), fix=fix, place=self.place(at)))

    def mapping(self, entry: MappingEntry, path: str, example: str) -> dict[str, MappingEntry]:
        """The entries of what must be a mapping; nothing at all is an empty one."""
        if isinstance(entry.node.value, dict):
            return entry.node.value
        if entry.node.value is not None:
            self.wrong(entry, f"`{path}:` must be a mapping.", f"Write names with values, {example}.")
        return {}

    def known(self, given: dict[str, MappingEntry], keys: Collection[str], what: str) -> None:
        """Complain of every key that is none: what is misspelt would otherwise silently not be there."""
        for key, entry in given.items():
            if key not in keys:
                meant = "timeout_override" if key == "timeout" and "timeout_override" in keys else None
                fix = f"Did you mean {meant!r}?" if meant else offer(key, keys)
                self.wrong(entry, f"{key!r} is nothing that {what} has.", fix)


def offer(name: str, known: Collection[str]) -> str:
    """What was probably meant, or all that there is."""
    near = nearest(name, known)
    if near is not None:
        return f"Did you mean {near!r}?"
    return f"There are {', '.join(known)}." if known else "There are none."
