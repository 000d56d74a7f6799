"""`run FLOW.yaml` and `resume RUN`: a flow from its file to its summary, and again from where it was cut off."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import RUNNING, Commands
from allswell.doors.cli.flowchoice import choices_of, chosen, how_to_choose
from allswell.doors.cli.flowing import read_bytes
from allswell.doors.cli.flowsummary import finish
from allswell.doors.cli.frame import Exit, Frame, remark
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.doors.cli.render import plain
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.arithmetic.finding import Finding
    from allswell.domain.capture import Choice
    from allswell.domain.names import RunId
    from allswell.engine.watch import Watch
    from allswell.flows.run.base import RunBase
    from allswell.flows.run.runner import Runner, Summary
    from allswell.flows.run.standing import CutOff, RunStanding
    from allswell.flows.spec import Flow


def add_to(app: Commands) -> None:
    """Register the command that goes on with a flow; `run` is registered where commands are run."""
    app.add(
        RUNNING,
        "resume",
        resume,
        "allswell resume r_…    go on with what is not done",
        "allswell resume r_… --choose discard_and_retry    put its files back first",
        "allswell resume r_… --choose plan=escalate        about one step of several",
    )


def run_flow(frame: Frame, file: str, given: Sequence[str], jobs: int) -> None:
    """Run a flow from the beginning."""
    from allswell.flows.run.plan import given_inputs
    from allswell.flows.run.start import Beginning, begin, make_site
    from allswell.timing.clock import SystemClock

    source = read_bytes(file)
    flow, found = _loaded(frame, file, source)
    inputs = given_inputs(flow, _inputs(given))
    announced = _announced(frame, found)
    where = "" if file == "-" else str(Path(file).resolve())
    beginning = Beginning(flow, source, where, frame.home, Path.cwd(), inputs, announced)
    policy = frame.settings.policy_for("")

    async def work(watch: Watch) -> Summary:
        from allswell.flows.run.runner import Runner

        run = watch.new_run()
        base = await begin(watch, beginning, run, policy, SystemClock())
        with base.held():
            site = await make_site(watch, base, run)
            site.agents = frame.settings.known_agents
            site.tell("flow_started", run=run, announced=list(announced))
            summary = await _ran(frame, Runner(site, run, jobs=jobs), flow)
            await _end(watch, run, summary)
            return summary

    finish(frame, frame.run(work, making=True))


def resume(
    run: Annotated[str, Argument(metavar="RUN", help="The run, as `allswell runs` lists it.", of=("run",))],
    choose: Annotated[
        list[str] | None,
        Option("--choose", metavar="[STEP=]CHOICE", help="What to do about a step that was cut off, or about all."),
    ] = None,
    jobs: Annotated[int, Option("--jobs", "-j", metavar="N", min=1, max=1_000, help="Steps at once.")] = 16,
    store: Store = None,
    json: Json = False,
) -> None:
    """Go on with a flow that was cut off, failed or timed out; steps that are done are not run again.

    A step that was cut off with uncommitted changes is asked about: retry_step runs it again on top of them,
    discard_and_retry keeps them on a recovery ref and puts the files back as they were when the step began, escalate
    asks a human.
    """
    from allswell.flows.run.base import find_base

    frame = Frame(store, json=json)
    if choose:
        frame.for_humans("resume --choose")
    choices = choices_of(choose or ())
    base = find_base(frame.home, run)
    if not Path(base.record.folder).is_dir():
        text = f"the folder {base.record.folder}, in which the flow ran, is gone"
        raise Refused("no_directory", text, where="run")
    with base.held():
        source = _source_now(base)
        name = base.record.file or str(base.source)
        flow, found = _loaded(frame, name, source)
        _announced(frame, found)

        async def work(watch: Watch) -> Summary | None:
            return await _resumed(frame, watch, base, flow, source, choices, jobs)

        summary = frame.run(work)
    finish(frame, summary)


async def _resumed(
    frame: Frame, watch: Watch, base: RunBase, flow: Flow, source: bytes, choices: Mapping[str, Choice], jobs: int
) -> Summary | None:
    from allswell.doors.shapes.flow_end import OfferShape
    from allswell.flows.run import resume as going
    from allswell.flows.run.runner import Runner, RunVerdict, Summary
    from allswell.flows.run.site import in_thread
    from allswell.flows.run.standing import check_outputs, cut_offs, look
    from allswell.flows.run.start import make_site
    from allswell.timing.clock import SystemClock

    wall = SystemClock().wall()
    outputs = {
        member.id: [one.path for one in step.outputs if "{{" not in one.path]
        for step in flow.steps
        for member in step.members()
    }
    await going.settle_dead(watch, base, wall, outputs, lambda text: remark(f"allswell: {text}"))
    standing = await look(watch, base)
    freed = await going.free_dead(watch, standing)
    await in_thread(lambda: going.settle_functions(base, standing, freed, wall, outputs))
    diff = going.changes_in_file(base, source)
    _tell_standing(frame, base, flow, standing, diff)
    await check_outputs(watch, base, standing)
    if all(name in standing.done for name in outputs):
        shown = base.shown(base.path)
        states = dict.fromkeys(outputs, "done")
        return Summary(base.record.run, flow.name, shown, RunVerdict.DONE, states, {}, (), 0)
    as_it_is = await going.as_it_is(watch, base, standing, source)
    cuts = await in_thread(lambda: cut_offs(base, standing, as_it_is=as_it_is))
    decided = chosen(frame, cuts, choices)
    if len(decided) < len(cuts):
        frame.say(OfferShape.of(base.record.run, cuts))
        frame.leave(Exit.NEEDS_HUMAN, None if frame.json else how_to_choose(base, cuts))
    kept = await _discarded(frame, base, cuts, decided)
    base, run = await going.go_on(watch, base, flow, source, frame.settings.policy_for(""))
    for cut in cuts:
        if decided[cut.step] == "escalate":
            await going.escalate(watch, cut, run)
    site = await make_site(watch, base, run)
    site.agents = frame.settings.known_agents
    site.finished.extend(standing.done)
    site.tell("flow_resumed", run=run, done=len(standing.done), choices=decided, kept=kept)
    before = dict.fromkeys(standing.done, "done") | dict.fromkeys(standing.skipped, "skipped")
    summary = await _ran(frame, Runner(site, run, jobs=jobs, before=before), flow)
    await _end(watch, run, summary)
    return summary


async def _discarded(frame: Frame, base: RunBase, cuts: list[CutOff], decided: Mapping[str, Choice]) -> list[str]:
    """Put back what was to be discarded; where it is kept."""
    from allswell.flows.run.discard import discard
    from allswell.flows.run.site import in_thread

    those = [cut for cut in cuts if decided[cut.step] == "discard_and_retry"]
    if not those:
        return []
    done = await in_thread(lambda: discard(base.home, Path(base.record.folder), those))
    for cut, one in zip(those, done, strict=True):
        if not frame.json:
            remark(f"the changes of {cut.step} are kept in {one.kept.name}; its files are as they were when it began")
        if one.left and not frame.json:
            more = f" and {len(one.left) - 8} more" if len(one.left) > 8 else ""
            remark(f"left as they are, as others may have changed them too: {plain(', '.join(one.left[:8]))}{more}")
    return [one.kept.name for one in done]


def join_flow(frame: Frame, run: str, jobs: int) -> None:
    """Take steps of a run that another process has started, for as long as there are any."""
    from allswell.doors.shapes.flow_end import JoinedShape
    from allswell.timing.clock import SystemClock

    async def work(watch: Watch) -> Summary:
        from allswell.engine.finding import find_run
        from allswell.flows.run.join import join
        from allswell.flows.run.runner import Runner
        from allswell.flows.run.start import make_site, this_runner

        id_ = await find_run(watch.views, run)
        base = await join(watch, id_, frame.home, Path.cwd(), SystemClock().wall())
        site = await make_site(watch, base, id_)
        site.agent, site.agents = this_runner("join"), frame.settings.known_agents
        return await _ran(frame, Runner(site, id_, jobs=jobs), None)

    summary = frame.run(work)
    how = summary.verdict.value.replace("_", " ")
    words = f"{summary.flow} ({summary.run}): {how}; {summary.ran:,} steps were done here"
    frame.say(JoinedShape(summary.run, summary.flow, summary.verdict, summary.ran), words)
    if summary.verdict == "interrupted":
        frame.leave(Exit.INTERRUPTED)


# --- running ----------------------------------------------------------------------------------------------------------


def _loaded(frame: Frame, file: str, source: bytes) -> tuple[Flow, list[Finding]]:
    """The flow, with agents that there are, and its limits put in force for what its functions call."""
    from allswell.domain.deadline import Limits
    from allswell.flows.arithmetic import load_flow
    from allswell.flows.run.agents import check_agents, names_agents
    from allswell.runtime.limits import use_limits

    settings = frame.settings
    flow, found = load_flow(source, "standard input" if file == "-" else file, settings)
    if names_agents(flow):
        check_agents(flow, settings.fleet.agents)
    usual = settings.limits()
    use_limits(Limits(flow.timeouts, usual.hard_limits, usual.grace))
    return flow, found


async def _ran(frame: Frame, runner: Runner, flow: Flow | None) -> Summary:
    """Run it to its end, shown as it goes; signals stop it, with everything that belongs to it (F13)."""
    import asyncio

    from allswell.doors.cli.flowtree import watch_flow

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _stopped, frame, runner, number)
    showing = None if frame.json else asyncio.ensure_future(watch_flow(runner, flow))
    try:
        summary = await runner.run()
    finally:
        if showing is not None:
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await showing
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
    runner.site.tell("flow_stopped", verdict=summary.verdict)
    await runner.site.written()
    return summary


def _stopped(frame: Frame, runner: Runner, number: signal.Signals) -> None:
    first = not runner.interrupted
    runner.interrupt(signal.Signals(number).name)
    if first and not frame.json and runner.active:
        remark(f"stopping {len(runner.active)} steps, with what they have kept; again to stop at once")


async def _end(watch: Watch, run: RunId, summary: Summary) -> None:
    """A run that has come to its end is closed in the store; one that waits or was interrupted stays open."""
    if summary.verdict in ("done", "failed"):
        with contextlib.suppress(Refused):  # its deadline was quicker
            await watch.end_run(run, summary.verdict.value)


def _inputs(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise Refused("bad_input", f"an input is given as NAME=VALUE, not {one!r}", where="--input")
        if name in found:
            raise Refused("bad_input", f"the input {name} is given twice", where="--input")
        found[name] = value
    return found


def _announced(frame: Frame, found: Sequence[Finding]) -> tuple[str, ...]:
    """What is to be said when a flow is loaded: overrides above a hard limit, and what can never happen (F12)."""
    told = tuple(f"{one.place}: {one.says}" for one in found if one.rule == "override" or one.severity == "error")
    if not frame.json:
        for one in told:
            remark(plain(one))
    return told


# --- going on ---------------------------------------------------------------------------------------------------------


def _source_now(base: RunBase) -> bytes:
    """The flow's file as it is now; where it is gone, as it was when the run was started."""
    file = base.record.file
    if file and Path(file).is_file():
        return read_bytes(file)
    return base.source.read_bytes()


def _tell_standing(frame: Frame, base: RunBase, flow: Flow, standing: RunStanding, diff: str) -> None:
    if frame.json:
        return
    total = sum(step.count() for step in flow.steps)
    remark(f"{base.record.run} ({plain(base.record.flow)}): {len(standing.done)} of {total} steps are done")
    if diff:
        remark("the flow's file has changed since the run was started:")
        sys.stderr.write("".join(f"  {plain(line)}\n" for line in diff.splitlines()))
