"""Gathering evidence of progress; what counts as such is decided in `allswell.domain.evidence`.

`lines` reads what an attempt prints, as it passes, and `room` what many print; `processes` looks at its process tree;
`work` at the folder it works in.
"""

from allswell.runtime.evidence.lines import Pump
from allswell.runtime.evidence.processes import look_at
from allswell.runtime.evidence.room import Room
from allswell.runtime.evidence.work import WorkLook

__all__ = ["Pump", "Room", "WorkLook", "look_at"]
