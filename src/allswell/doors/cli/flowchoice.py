"""The question of F11, put to whoever resumes a run: what to do about a step that was cut off at its work."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from allswell.doors.cli.advice import typed_here
from allswell.doors.cli.frame import Frame, remark
from allswell.doors.cli.render import plain
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.capture import Choice
    from allswell.flows.run.base import RunBase
    from allswell.flows.run.standing import CutOff


def chosen(frame: Frame, cut: CutOff, choose: str | None) -> Choice | None:
    """What somebody decided: by the flag, or asked at a terminal; None where nobody can be asked."""
    from allswell.domain.capture import Choice

    if choose is not None:
        return Choice(choose)
    if frame.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
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
    means = {
        "retry_step": "run it again on top of them",
        "discard_and_retry": "keep them on a recovery ref, put the files back, and run it again",
        "escalate": "put it before a human, and go on with the rest",
    }
    for number, option in enumerate(cut.offer.options, 1):
        best = f"  (recommended: {cut.offer.reason})" if option is cut.offer.recommendation else ""
        sys.stderr.write(f"  {number} {option:<18} {means[option]}{best}\n")


def offer(cut: CutOff) -> dict[str, object]:
    """The question as data, in the seed's words."""
    return {"options": cut.offer.options, "recommendation": cut.offer.recommendation, "reason": cut.offer.reason}


def how_to_choose(base: RunBase, cut: CutOff) -> str:
    """The question where nobody can be asked, with what to type."""
    _tell_cut(cut)
    return "choose one: " + typed_here(f"allswell resume {base.record.run} --choose {cut.offer.recommendation}")
