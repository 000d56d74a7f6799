"""What a simulation found and saw: broken promises, situations met, and the figures of a drill."""

from __future__ import annotations

import hashlib

import msgspec


class Broken(msgspec.Struct, frozen=True):
    """A promise that did not hold: which, when (virtual seconds), and what was seen."""

    promise: str
    at: float
    seen: str


class Report(msgspec.Struct):
    """The outcome of one simulation; the same seed gives the same bytes."""

    seed: int
    hours: float
    broken: list[Broken] = msgspec.field(default_factory=list)
    """The first promise that was broken ends the run, so there are rarely more."""
    met: dict[str, int] = msgspec.field(default_factory=dict)
    """Situations worth meeting, and how often they were."""
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    """What the weather did, by name."""
    submitted: int = 0
    """Tasks whose submission was acknowledged."""
    finished: int = 0
    lost: int = 0
    duplicated: int = 0
    stale_refused: int = 0
    """Writes of holders that no longer held what they wrote to."""
    commits: int = 0
    detected_p50_ms: int = 0
    """How long after its moment an expired attempt was noticed."""
    detected_max_ms: int = 0
    digest: str = ""
    """Of every committed change and every answer, in order."""

    @property
    def well(self) -> bool:
        """Whether every promise held."""
        return not self.broken


class Chronicle:
    """Gathers what a report will say, and the running digest of the history."""

    def __init__(self, seed: int, hours: float) -> None:
        self.report = Report(seed, hours)
        self.delays: list[int] = []
        self._hash = hashlib.blake2b(digest_size=16)
        self._encode = msgspec.msgpack.Encoder().encode

    def met(self, situation: str) -> None:
        """Count a situation worth meeting."""
        seen = self.report.met
        seen[situation] = seen.get(situation, 0) + 1

    def struck(self, fault: str) -> None:
        """Count what the weather did."""
        struck = self.report.faults
        struck[fault] = struck.get(fault, 0) + 1

    def note(self, said: object) -> None:
        """Enter something into the digest."""
        self._hash.update(self._encode(said))

    def close(self) -> Report:
        """The finished report."""
        report = self.report
        delays = sorted(self.delays)
        if delays:
            report.detected_p50_ms = delays[len(delays) // 2]
            report.detected_max_ms = delays[-1]
        report.digest = self._hash.hexdigest()
        return report
