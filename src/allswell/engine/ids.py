"""New ids: a prefix, the time, and chance. They sort by age, so that indexes grow at one end.

Time and chance come from outside, so that a simulated history has the same ids every time.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from allswell.domain.ids import CommandId, RunId, TaskId

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_BITS, _CHANCE_BITS = 45, 35
_LETTERS = (_TIME_BITS + _CHANCE_BITS) // 5
SPELLED = f"[{_ALPHABET}]{{{_LETTERS}}}"
"""How an id is spelled behind its prefix, as a pattern."""
_MARK = 8
"""Letters of a request's own, behind its task's."""
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]


def _spell(number: int) -> str:
    # Written out: done for every step of a flow. In two halves, whose parts are small numbers.
    high, low, pairs = number >> 40, number & 0xFF_FFFF_FFFF, _PAIRS
    return (
        f"{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}"
        f"{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


class Ids:
    """A source of ids; `wall` gives milliseconds, `chance` so many random bits."""

    def __init__(self, wall: Callable[[], int], chance: Callable[[int], int]) -> None:
        self._wall = wall
        self._chance = chance
        self._moment = -1
        self._low = 0
        self._stem = ""
        self._stem_of = -1
        self._commands = 0
        self._caller = _spell(chance(_LETTERS * 5))

    def _next(self) -> str:
        """Greater than every one before from this source, also within one millisecond."""
        moment = self._wall()
        if moment > self._moment:
            self._moment, self._low = moment, self._chance(_CHANCE_BITS - 1)
            self._stem_of = -1
        else:
            self._low += 1 + self._chance(8)
        low = self._low
        if low >> 20 != self._stem_of:  # all but the last four letters: the same for thousands in a row
            self._stem_of = low >> 20
            self._stem = _spell((self._moment << _CHANCE_BITS) | low)[: _LETTERS - 4]
        return f"{self._stem}{_PAIRS[low >> 10 & 1023]}{_PAIRS[low & 1023]}"

    def task(self) -> TaskId:
        """A new task's id."""
        return TaskId(f"t_{self._next()}")

    def run(self) -> RunId:
        """A new run's id."""
        return RunId("r_" + self._next())

    def mark(self) -> str:
        """What tells a new request from the others of its task."""
        return self._next()[-_MARK:]

    def command(self) -> CommandId:
        """A new command's id: chance for this source, and a count."""
        self._commands += 1
        return CommandId(f"{self._caller}.{self._commands:x}")


def command_of(verb: str, *content: object) -> CommandId:
    """The id of a command that is the same whenever the same is said: a repeated one counts once."""
    return CommandId(f"{verb}.{blake2b(repr(content).encode('utf-8', 'surrogatepass'), digest_size=12).hexdigest()}")


def task_for_key(key: str) -> TaskId:
    """The task id that belongs to a caller's own key: submitting under the same key twice makes one task."""
    return TaskId("t_" + _of_key(key))


def mark_for(key: str) -> str:
    """What tells the request of a caller's own key from the others of its task."""
    return _of_key(key)[-_MARK:]


def run_for_key(key: str) -> RunId:
    """The run id that belongs to a caller's own key: opening under the same key twice makes one run."""
    return RunId("r_" + _of_key(key))


def _of_key(key: str) -> str:
    return _spell(int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=10).digest()))
