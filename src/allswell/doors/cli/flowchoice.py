"""The question of F11, put to whoever resumes a run: what to do about a step that was cut off at its work."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from allswell.domain.meant import nearest
from allswell.doors.cli.advice import typed_here
from allswell.doors.cli.frame import Frame, remark
from allswell.doors.cli.render import plain
from allswell.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from allswell.domain.capture import Choice
    from allswell.flows.run.base import RunBase
    from allswell.flows.run.standing import CutOff


def choices_of(given: Sequence[str]) -> dict[str, Choice]:
    """What was said with `--choose`: by step; under no name, for all that have none of their own."""
    from allswell.domain.capture import Choice

    found: dict[str, Choice] = {}
    for one in given:
        step, _, word = one.rpartition("=")
        if word not in tuple(Choice):
            near = nearest(word, tuple(Choice))
            hint = f"; did you mean {near!r}?" if near else ""
            text = f"{word!r} is none of {', '.join(Choice)}{hint}"
            raise Refused("unknown_option", text, where="--choose")
        if step in found:
            raise Refused("bad_choice", f"{step or 'one for all'} is chosen twice", where="--choose")
        found[step] = Choice(word)
    return found


def chosen(frame: Frame, cuts: Sequence[CutOff], choices: Mapping[str, Choice]) -> dict[str, Choice]:
    """What somebody decided about each step: by the flag, or asked at a terminal; steps without are undecided."""
    names = {cut.step for cut in cuts}
    for name in choices:
        if name and cuts and name not in names:
            text = f"there is nothing to choose about {name!r}; cut off with changes: {', '.join(sorted(names))}"
            raise Refused("unknown_step", text, where="--choose")
    decided = {
        cut.step: choices[cut.step] if cut.step in choices else choices[""]
        for cut in cuts
        if cut.step in choices or "" in choices
    }
    if frame.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return decided
    for cut in cuts:
        if cut.step not in decided:
            said = _asked(cut)
            if said is None:
                break
            decided[cut.step] = said
    return decided


def _asked(cut: CutOff) -> Choice | None:
    _tell_cut(cut)
    sys.stderr.write(f"choose [{cut.offer.recommendation}]: ")
    sys.stderr.flush()
    said = sys.stdin.readline()
    if not said:
        return None
    word = said.strip().lower() or cut.offer.recommendation.value
    fits = [one for number, one in enumerate(cut.offer.options, 1) if word == str(number) or one.startswith(word)]
    if len(fits) != 1:
        raise Refused("unknown_option", f"{word!r} is none of {', '.join(cut.offer.options)}", where="choice")
    return fits[0]


def _tell_cut(cut: CutOff) -> None:
    files = ", ".join(cut.context.uncommitted_changes[:8])
    more = len(cut.context.uncommitted_changes) - 8
    rest = f" and {more} more" if more > 0 else ""
    remark(f"{cut.step} was cut off; its changes are uncommitted: {plain(files)}{rest}")
    if cut.shared:
        others = sorted({step for also in cut.shared.values() for step in also})
        shown = ", ".join(list(cut.shared)[:8])
        remark(f"of these may be of {', '.join(others)}, which ran beside it: {plain(shown)}")
    means = {
        "retry_step": "run it again on top of them",
        "discard_and_retry": "keep them on a recovery ref, put the files back as they were, and run it again",
        "escalate": "put it before a human, and go on with the rest",
    }
    for number, option in enumerate(cut.offer.options, 1):
        best = f"  (recommended: {cut.offer.reason})" if option is cut.offer.recommendation else ""
        sys.stderr.write(f"  {number} {option:<18} {means[option]}{best}\n")


def how_to_choose(base: RunBase, cuts: Sequence[CutOff]) -> str:
    """The question where nobody can be asked, with what to type."""
    for cut in cuts:
        _tell_cut(cut)
    each = len(cuts) > 1
    said = " ".join(f"--choose {f'{cut.step}=' if each else ''}{cut.offer.recommendation}" for cut in cuts[:8])
    return f"choose {'for each' if each else 'one'}: " + typed_here(f"allswell resume {base.record.run} {said}")
