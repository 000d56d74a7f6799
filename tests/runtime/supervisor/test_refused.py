"""What a supervisor refuses before anything runs."""

import os
from pathlib import Path

import pytest

from allswell import Refused
from tests.runtime.supervisor.stage import Night, night, standin


def test_two_supervisors_with_one_name_are_refused(tmp_path: Path) -> None:
    from allswell.runtime.supervisor import Supervisor

    async def scene(night: Night) -> None:
        await night.event("supervisor_started")
        with pytest.raises(Refused, match=rf"'main' runs already: process {os.getpid()}") as told:
            await Supervisor(night.watch, night.plan(standin())).run()
        assert told.value.code == "name_taken"

    night(tmp_path, scene, standin())


def test_an_agent_that_cannot_be_started_is_refused_before_anything_runs(tmp_path: Path) -> None:
    async def scene(night: Night) -> None: ...

    with pytest.raises(Refused, match="agent ghost: there is no program 'no-such-program' on PATH"):
        night(tmp_path, scene, standin("ghost", command=("no-such-program", "{prompt}")))
    with pytest.raises(Refused, match="agent ghost: there is no module nowhere"):
        night(tmp_path, scene, standin("ghost", command=(), function="nowhere:work"))
