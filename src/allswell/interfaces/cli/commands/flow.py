"""`run FLOW.yaml`, `resume` and `graph`: flows from the file to the summary, and as a picture."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from allswell.domain.duration import show
from allswell.domain.ids import RunId
from allswell.domain.values import nearest
from allswell.errors import Refused
from allswell.interfaces.cli.arguments import why_not
from allswell.interfaces.cli.context import CliContext, Exit, can_ask, remark, write
from allswell.interfaces.cli.options import Argument, Option, Storeless
from allswell.interfaces.cli.registry import LOOKING, RUNNING, Commands
from allswell.interfaces.cli.rendering import Column, columns, cut, paint, plain, sentence, table, typed_here

if TYPE_CHECKING:
    from allswell.domain.check.model import Finding
    from allswell.domain.receipts.step import CutOffChoice, FlowSummary
    from allswell.engine.watch import Watch
    from allswell.flows.graph import FlowLayout, GraphNode
    from allswell.flows.run.folder import RunBase
    from allswell.flows.run.runner import Runner
    from allswell.flows.run.state import InterruptedStep, RunStatus
    from allswell.flows.spec import Flow
    from allswell.store.views import Views


# The question of F11, put to whoever resumes a run: what to do about a step that was cut off at its work.


def choices_of(given: Sequence[str]) -> dict[str, CutOffChoice]:
    """What was said with `--choose`: by step; under no name, for all that have none of their own."""
    from allswell.domain.receipts.step import CutOffChoice

    found: dict[str, CutOffChoice] = {}
    for one in given:
        step, _, word = one.rpartition("=")
        if word not in tuple(CutOffChoice):
            near = nearest(word, tuple(CutOffChoice))
            hint = f"; did you mean {near!r}?" if near else ""
            text = f"{word!r} is not one of {', '.join(CutOffChoice)}{hint}"
            raise Refused("unknown_option", text, where="--choose")
        if step in found:
            raise Refused("bad_choice", f"{step or 'one for all'} is given twice", where="--choose")
        found[step] = CutOffChoice(word)
    return found


def chosen(
    context: CliContext, cuts: Sequence[InterruptedStep], choices: Mapping[str, CutOffChoice]
) -> dict[str, CutOffChoice]:
    """What somebody decided about each step: by the flag, or asked at a terminal; steps without are undecided."""
    names = {cut_off.step for cut_off in cuts}
    for name in choices:
        if name and cuts and name not in names:
            text = f"{name!r} was not cut off with changes; these were: {', '.join(sorted(names))}"
            raise Refused("unknown_step", text, where="--choose")
    decided = {
        cut_off.step: choices[cut_off.step] if cut_off.step in choices else choices[""]
        for cut_off in cuts
        if cut_off.step in choices or "" in choices
    }
    if context.json or not can_ask():
        return decided
    for cut_off in cuts:
        if cut_off.step not in decided:
            said = _asked(cut_off)
            if said is None:
                break
            decided[cut_off.step] = said
    return decided


def _asked(cut_off: InterruptedStep) -> CutOffChoice | None:
    _tell_cut(cut_off)
    sys.stderr.write(f"choose [{cut_off.offer.recommendation}]: ")
    sys.stderr.flush()
    said = sys.stdin.readline()
    if not said:
        return None
    word = said.strip().lower() or cut_off.offer.recommendation.value
    fits = [one for number, one in enumerate(cut_off.offer.options, 1) if word == str(number) or one.startswith(word)]
    if len(fits) != 1:
        raise Refused("unknown_option", f"{word!r} is not one of {', '.join(cut_off.offer.options)}", where="choice")
    return fits[0]


def _tell_cut(cut_off: InterruptedStep) -> None:
    files = ", ".join(cut_off.context.uncommitted_changes[:8])
    more = len(cut_off.context.uncommitted_changes) - 8
    rest = f" and {more} more" if more > 0 else ""
    remark(f"{cut_off.step} was cut off; its changes are uncommitted: {plain(files)}{rest}")
    if cut_off.shared:
        others = sorted({step for also in cut_off.shared.values() for step in also})
        shown = ", ".join(list(cut_off.shared)[:8])
        remark(f"some of these may belong to {', '.join(others)}, which ran beside it: {plain(shown)}")
    means = {
        "retry_step": "run it again on top of them",
        "discard_and_retry": "keep them on a recovery ref, put the files back as they were, and run it again",
        "escalate": "ask a human, and go on with the rest",
    }
    for number, option in enumerate(cut_off.offer.options, 1):
        best = f"  (recommended: {cut_off.offer.reason})" if option is cut_off.offer.recommendation else ""
        sys.stderr.write(f"  {number} {option:<18} {means[option]}{best}\n")


def how_to_choose(base: RunBase, cuts: Sequence[InterruptedStep]) -> str:
    """The question where nobody can be asked, with what to type."""
    for cut_off in cuts:
        _tell_cut(cut_off)
    each = len(cuts) > 1
    said = " ".join(
        f"--choose {f'{cut_off.step}=' if each else ''}{cut_off.offer.recommendation}" for cut_off in cuts[:8]
    )
    return f"choose {'for each' if each else 'one'}: " + typed_here(f"allswell resume {base.record.run} {said}")


# What a flow came to, told at its end: in words with what to do next, or as data.

_OVER = ("done", "cancelled")
"""Reasons for which a run ended that nothing goes on after."""
CODES = {
    "done": Exit.FINE,
    "failed": Exit.FAILED,
    "needs_human": Exit.NEEDS_HUMAN,
    "timed_out": Exit.TIMED_OUT,
    "interrupted": Exit.INTERRUPTED,
}
_LISTED = 20
_TAIL, _SHOWN = 4_096, 5
"""Bytes of a step's output that are looked at, and lines of it that are shown where it has failed."""


def finish(context: CliContext, summary: FlowSummary | None) -> None:
    """Tell it, and end with the code that it means."""
    if summary is None:
        return
    from allswell.views.fields import as_shape
    from allswell.views.flow import FlowRanShape

    code = CODES[summary.verdict]
    context.say(as_shape(summary, FlowRanShape, exit=int(code)), lambda: _words(summary))
    if code is not Exit.FINE:
        context.leave(code)


def _last_lines(base: str, name: str) -> list[str]:
    """The end of what the last attempt at a step printed: what was said on standard error, or else the rest."""
    from allswell.runtime.attempt.output import end_of

    found = [log for log in Path(base).glob(f"*/llm/{escape(name)}-*.std*") if log.stem[len(name) + 1 :].isdigit()]
    for log in sorted(found, key=lambda log: (int(log.stem[len(name) + 1 :]), log.suffix == ".stderr"), reverse=True):
        if lines := end_of(log):
            return [cut(plain(line), (columns() or 120) - 4) for line in lines[-_SHOWN:]]
    return []


def _words(summary: FlowSummary) -> str:
    counted = Counter(summary.states.values())
    tally = ", ".join(f"{count:,} {state}" for state, count in counted.most_common())
    head = {
        "done": paint("All's well:", "ready") + f" {plain(summary.flow)} is done",
        "failed": paint(f"{plain(summary.flow)} has failed", "failed"),
        "needs_human": paint(f"{plain(summary.flow)} needs you", "waiting"),
        "timed_out": paint(f"{plain(summary.flow)} ran out of time", "failed"),
        "interrupted": paint(f"{plain(summary.flow)} was interrupted", "waiting"),
    }[summary.verdict]
    lines = [sentence(f"{head} ({tally or 'no steps'}).  {summary.base}")]
    bad = [name for name, state in summary.states.items() if state in ("failed", "cancelled", "asked")]
    for name in bad[:_LISTED]:
        lines.append(sentence(f"  {plain(name)}: {plain(summary.reasons.get(name, ''))}"))
        lines += [f"    {line}" for line in _last_lines(summary.base, name)]
    if len(bad) > _LISTED:
        lines.append(f"  and {len(bad) - _LISTED:,} more")
    lines += [f"  {typed_here(f'allswell show {question}')}" for question in summary.questions[:_LISTED]]
    if summary.verdict != "done":
        first = "after the answer: " if summary.questions else "to go on: "
        lines.append(paint(f"  {first}{typed_here(f'allswell resume {summary.run}')}", "dim"))
    return "\n".join(lines)


# Flow files as commands take them: a path or standard input, read with the settings that hold here.

STDIN = "standard input"


def read_bytes(file: str) -> bytes:
    """The content of a file that was named, up to a little more than is ever taken."""
    from allswell.flows.loader import LARGEST

    try:
        if file == "-":
            return sys.stdin.buffer.read(LARGEST + 1)
        with open(file, "rb") as opened:  # noqa: PTH123 - a name that was typed, opened once
            return opened.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise Refused("no_file", f"{file!r} cannot be read: {why_not(error)}", where="FILE") from None


def read_file(file: str) -> tuple[Flow, list[Finding]]:
    """The flow of a file, and what is to be announced about it."""
    from allswell.flows.schema import load_flow
    from allswell.settings import load

    return load_flow(read_bytes(file), STDIN if file == "-" else file, load())


def add_to(app: Commands) -> None:
    """Register the command that goes on with a flow; `run` is registered where commands are run."""
    app.add(
        LOOKING,
        "graph",
        graph,
        "allswell graph flow.yaml                 which steps wait for which",
        "allswell graph flow.yaml --svg flow.svg  the same as a picture",
    )
    app.add(
        RUNNING,
        "resume",
        resume,
        "allswell resume        go on with the last run that was not finished",
        "allswell resume r_…    go on with this one",
        "allswell resume r_… --choose discard_and_retry    put its files back first",
        "allswell resume r_… --choose plan=escalate        about one step of several",
    )


def run_flow(context: CliContext, file: str, given: Sequence[str], jobs: int) -> None:
    """Run a flow from the beginning."""
    from allswell.flows.run.plan import given_inputs
    from allswell.flows.run.runner import FlowStart, begin, make_site
    from allswell.timing.clock import SystemClock

    source = read_bytes(file)
    flow, found = _loaded(context, file, source)
    inputs = given_inputs(flow, _inputs(given))
    announced = _announced(context, found)
    where = "" if file == "-" else str(Path(file).resolve())
    beginning = FlowStart(flow, source, where, context.home, Path.cwd(), inputs, announced)
    policy = context.settings.policy_for("")

    async def work(watch: Watch) -> FlowSummary:
        from allswell.flows.run.runner import Runner

        run = watch.new_run()
        base = await begin(watch, beginning, run, policy, SystemClock())
        with base.held():
            site = await make_site(watch, base, run)
            site.agents = context.settings.known_agents
            site.tell("flow_started", run=run, announced=list(announced))
            summary = await _ran(context, Runner(site, run, jobs=jobs), flow)
            await _end(watch, run, summary)
            return summary

    finish(context, context.run(work, making=True))


def resume(
    run: Annotated[
        str | None,
        Argument(
            metavar="RUN", help="The run, as `allswell runs` lists it. Default: the last that can go on.", of=("run",)
        ),
    ] = None,
    choose: Annotated[
        list[str] | None,
        Option(
            "--choose",
            metavar="[STEP=]CHOICE",
            help="retry_step, discard_and_retry or escalate, for one step or for all.",
        ),
    ] = None,
    jobs: Annotated[
        int, Option("--jobs", "-j", metavar="N", min=1, max=1_000, help="Maximum number of steps at once.")
    ] = 16,
    *,
    context: CliContext,
) -> None:
    """Continue a flow that was interrupted, failed or timed out; finished steps are not run again.

    If a step was cut off with uncommitted changes, you are asked what to do: retry_step runs it again on top of them,
    discard_and_retry keeps them on a recovery ref and puts the files back as they were when the step began, escalate
    asks a human.
    """
    from allswell.flows.run.folder import find_base

    if choose:
        context.for_humans("resume --choose")
    choices = choices_of(choose or ())
    base = find_base(context.home, run) if run is not None else _last_unfinished(context)
    if not Path(base.record.folder).is_dir():
        text = f"the folder {base.record.folder}, in which the flow ran, is gone"
        raise Refused("no_directory", text, where="run")
    with base.held():
        source = _source_now(base)
        name = base.record.file or str(base.source)
        flow, found = _loaded(context, name, source)
        _announced(context, found)

        async def work(watch: Watch) -> FlowSummary | None:
            return await _resumed(context, watch, base, flow, source, choices, jobs)

        summary = context.run(work)
    finish(context, summary)


def _last_unfinished(context: CliContext) -> RunBase:
    """The last run that can go on: no process runs it, and it was neither finished nor called off."""
    from allswell.flows.run.folder import RunBase, all_records

    records = all_records(context.home)
    hint = "`allswell run FLOW.yaml` starts one, `allswell runs` lists runs"
    if not records:
        raise Refused("unknown_run", "no flow was run here yet", where="RUN", hint=hint)

    async def not_over(views: Views) -> set[str]:
        rows = {record.run: await views.view_run(RunId(record.runs[-1])) for record in records if record.runs}
        return {run for run, row in rows.items() if row is None or row.reason not in _OVER}

    unfinished = context.look(not_over)
    for record in records:
        base = RunBase(context.home, record)
        if record.run in unfinished and not base.is_running():
            return base
    raise Refused("unknown_run", "no run here can go on", where="RUN", hint=hint)


async def _resumed(
    context: CliContext,
    watch: Watch,
    base: RunBase,
    flow: Flow,
    source: bytes,
    choices: Mapping[str, CutOffChoice],
    jobs: int,
) -> FlowSummary | None:
    from allswell.domain.receipts.step import FlowSummary, RunVerdict
    from allswell.flows.run import resume as going
    from allswell.flows.run.runner import Runner, make_site
    from allswell.flows.run.state import check_outputs, cut_offs, look
    from allswell.runtime.attempt.runner import in_thread
    from allswell.timing.clock import SystemClock
    from allswell.views.flow import OfferShape

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
    _tell_standing(context, base, flow, standing, diff)
    await check_outputs(watch, base, standing)
    if all(name in standing.done for name in outputs):
        shown = base.shown(base.path)
        states = dict.fromkeys(outputs, "done")
        return FlowSummary(base.record.run, flow.name, RunVerdict.DONE, states, {}, (), 0, shown)
    as_it_is = await going.as_it_is(watch, base, standing, source)
    cuts = await in_thread(lambda: cut_offs(base, standing, as_it_is=as_it_is))
    decided = chosen(context, cuts, choices)
    if len(decided) < len(cuts):
        context.say(OfferShape.of(base.record.run, cuts))
        context.leave(Exit.NEEDS_HUMAN, None if context.json else how_to_choose(base, cuts))
    kept = await _discarded(context, base, cuts, decided)
    base, run = await going.go_on(watch, base, flow, source, context.settings.policy_for(""))
    for cut_off in cuts:
        if decided[cut_off.step] == "escalate":
            await going.escalate(watch, cut_off, run)
    site = await make_site(watch, base, run)
    site.agents = context.settings.known_agents
    site.finished.extend(standing.done)
    site.tell("flow_resumed", run=run, done=len(standing.done), choices=decided, kept=kept)
    before = dict.fromkeys(standing.done, "done") | dict.fromkeys(going.left_out(flow, standing), "skipped")
    before |= {name: "split" for name in standing.split if name not in standing.done}
    summary = await _ran(context, Runner(site, run, jobs=jobs, before=before), flow)
    await _end(watch, run, summary)
    return summary


async def _discarded(
    context: CliContext, base: RunBase, cuts: list[InterruptedStep], decided: Mapping[str, CutOffChoice]
) -> list[str]:
    """Put back what was to be discarded; where it is kept."""
    from allswell.flows.run.resume import discard
    from allswell.runtime.attempt.runner import in_thread

    those = [cut_off for cut_off in cuts if decided[cut_off.step] == "discard_and_retry"]
    if not those:
        return []
    done = await in_thread(lambda: discard(base.home, Path(base.record.folder), those))
    for cut_off, one in zip(those, done, strict=True):
        as_before = "its files are as they were when it began" + (", but for these" if one.left else "")
        context.remark(f"the changes of {cut_off.step} are kept in {one.kept.name}; {as_before}")
        if one.left:
            named = plain(", ".join(one.left[:8])) + (f" and {len(one.left) - 8} more" if len(one.left) > 8 else "")
            why = "other steps may have changed them too, something else is in their place, or a filter makes them"
            context.remark(f"not put back: {named} ({why})")
    return [one.kept.name for one in done]


def join_flow(context: CliContext, run: str, jobs: int) -> None:
    """Take steps of a run that another process has started, for as long as there are any."""
    from allswell.timing.clock import SystemClock
    from allswell.views.flow import JoinedShape

    async def work(watch: Watch) -> FlowSummary:
        from allswell.engine.lookup import find_run
        from allswell.flows.run.runner import Runner, join, make_site, this_runner

        id_ = await find_run(watch.views, run)
        base = await join(watch, id_, context.home, Path.cwd(), SystemClock().wall())
        site = await make_site(watch, base, id_)
        site.agent, site.agents = this_runner("join"), context.settings.known_agents
        return await _ran(context, Runner(site, id_, jobs=jobs), None)

    summary = context.run(work)
    how = summary.verdict.value.replace("_", " ")
    words = f"{summary.flow} ({summary.run}): {how}; {summary.ran:,} steps were done here"
    context.say(JoinedShape(summary.run, summary.flow, summary.verdict, summary.ran), words)
    if summary.verdict == "interrupted":
        context.leave(Exit.INTERRUPTED)


# --- running ----------------------------------------------------------------------------------------------------------


def _loaded(context: CliContext, file: str, source: bytes) -> tuple[Flow, list[Finding]]:
    """The flow, with agents that there are, and its limits put in force for what its functions call."""
    from allswell.domain.scopes import ScopeLimits
    from allswell.flows.run.command import check_agents, names_agents
    from allswell.flows.schema import load_flow
    from allswell.runtime.deadlines import use_limits

    settings = context.settings
    flow, found = load_flow(source, "standard input" if file == "-" else file, settings)
    if names_agents(flow):
        check_agents(flow, settings.fleet.agents)
    usual = settings.limits()
    use_limits(ScopeLimits(flow.timeouts, usual.hard_limits, usual.grace))
    return flow, found


async def _ran(context: CliContext, runner: Runner, flow: Flow | None) -> FlowSummary:
    """Run it to its end, shown as it goes; signals stop it, with everything that belongs to it (F13)."""
    import asyncio

    from allswell.interfaces.cli.flow_display import watch_flow

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _stopped, context, runner, number)
    showing = None if context.json else asyncio.ensure_future(watch_flow(runner, flow))
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


def _stopped(context: CliContext, runner: Runner, number: signal.Signals) -> None:
    first = not runner.interrupted
    runner.interrupt(signal.Signals(number).name)
    if first and runner.active:
        context.remark(f"stopping {len(runner.active)} steps, keeping their work; press Ctrl-C again to stop at once")


async def _end(watch: Watch, run: RunId, summary: FlowSummary) -> None:
    """A run that has come to its end is closed in the store; one that waits or was interrupted stays open."""
    if summary.verdict in ("done", "failed"):
        with contextlib.suppress(Refused):  # its deadline was quicker
            await watch.end_run(run, summary.verdict.value)


def _inputs(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise Refused("bad_input", f"an input must be NAME=VALUE, not {one!r}", where="--input")
        if name in found:
            raise Refused("bad_input", f"the input {name} is given twice", where="--input")
        found[name] = value
    return found


def _announced(context: CliContext, found: Sequence[Finding]) -> tuple[str, ...]:
    """What is to be said when a flow is loaded: overrides above a hard limit, and what can never happen (F12)."""
    told = tuple(f"{one.place}: {one.says}" for one in found if one.rule == "override" or one.severity == "error")
    for one in told:
        context.remark(plain(one))
    return told


# --- going on ---------------------------------------------------------------------------------------------------------


def _source_now(base: RunBase) -> bytes:
    """The flow's file as it is now; where it is gone, as it was when the run was started."""
    file = base.record.file
    if file and Path(file).is_file():
        return read_bytes(file)
    try:
        return base.read_source()
    except OSError as error:
        text = f"{plain(str(base.source))}, the flow as it was started, cannot be read: {error.strerror}"
        raise Refused("no_file", text, where=str(base.source)) from None


def _tell_standing(context: CliContext, base: RunBase, flow: Flow, standing: RunStatus, diff: str) -> None:
    if context.json:
        return
    total = sum(step.count() for step in flow.steps)
    remark(f"{base.record.run} ({plain(base.record.flow)}): {len(standing.done)} of {total} steps are done")
    if diff:
        remark("the flow's file has changed since the run was started:")
        sys.stderr.write("".join(f"  {plain(line)}\n" for line in diff.splitlines()))


# `allswell graph`: a flow as it will run, wave by wave, in text or as a picture.

_LISTED_STEPS = 8
"""How many steps of the longest way are written out."""


def graph(
    file: Annotated[str, Argument(metavar="FLOW", help="A flow (YAML), or `-` for standard input.")],
    svg: Annotated[
        str | None, Option("--svg", metavar="FILE", help="Write an SVG picture to this file; `-` for standard output.")
    ] = None,
    *,
    context: Storeless,
) -> None:
    """Draw a flow: its steps in the order in which they run, what each needs, and the longest path."""
    from allswell.flows.graph import FlowGraph, lay_out
    from allswell.views.flow import PictureShape

    flow, _ = read_file(file)
    layout = lay_out(flow)
    nodes = layout.nodes
    if svg is not None:
        _picture(svg, flow, layout)
        if svg != "-":
            context.say(PictureShape(svg, len(nodes)), f"{svg}: {len(nodes):,} steps")
        return
    context.say(FlowGraph(flow.name, flow.timeouts.flow, nodes), lambda: _told(flow, nodes))


def _picture(file: str, flow: Flow, layout: FlowLayout) -> None:
    from allswell.flows.graph import draw

    drawn = draw(flow.name, show(flow.timeouts.flow), layout)
    if file == "-":
        write(drawn)
        return
    try:
        Path(file).write_text(drawn, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Refused("no_file", f"{file!r} cannot be written: {why_not(error)}", where="--svg") from None


def _told(flow: Flow, nodes: Sequence[GraphNode]) -> str:
    waves = {node.wave for node in nodes}
    total = sum(node.members for node in nodes)
    head = f"{paint(plain(flow.name), 'bold')}  {_many(total, 'step')} in {_many(len(waves), 'wave')}"
    columns = (Column("WAVE"), Column("STEP", 12), Column("LIMIT"), Column("NEEDS", 12), Column("DOES", 16))
    rows = [
        [
            f"{node.wave + 1} {'●' if node.longest else ' '}",
            node.id + (f" ×{node.members:,}" if node.members > 1 else ""),
            node.limit,
            ", ".join(node.needs),
            node.what + (", then audited" if node.audited else ""),
        ]
        for node in nodes
    ]
    way = [node for node in nodes if node.longest]
    names = [node.id for node in way]
    if len(names) > _LISTED_STEPS:
        names = [*names[:3], "…", *names[-2:]]
    end = f"● the longest path: {' → '.join(names)}; limit {show(flow.timeouts.flow)}"
    return "\n".join([head, "", table(columns, rows), "", sentence(paint(plain(end), "dim"))])


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
