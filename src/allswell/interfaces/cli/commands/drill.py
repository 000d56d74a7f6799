"""`allswell drill`: the simulator for anyone, with a scorecard. Which faults there are is asked of the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.engine.lookup import did_you_mean
from allswell.engine.status.explanation import length
from allswell.errors import Refused
from allswell.interfaces.cli.rendering import paint, plain, prose
from allswell.testing.sim import CALM, Levels, SimReport, simulate

if TYPE_CHECKING:
    from rich.console import Console

EVERYTHING, NOTHING = "all", "none"


def levels_of(faults: str) -> Levels | None:
    """The weather that is asked for: `all`, `none`, or some faults by name, each with a figure where one is given."""
    wanted = [part.strip() for part in faults.split(",") if part.strip()]
    if wanted in ([], [EVERYTHING]):
        return None
    if wanted == [NOTHING]:
        return CALM
    known = Levels.__struct_fields__
    usual = Levels()
    chosen: dict[str, float] = dict.fromkeys(known, 0.0)
    for part in wanted:
        name, given, figure = part.partition("=")
        if name not in known:
            raise Refused("unknown_fault", f"no such fault: {name!r}{_offer(name, known)}", where="--faults")
        try:
            level = float(figure) if given else getattr(usual, name)
        except ValueError:
            raise Refused("bad_fault", f"{figure!r} is not a number; write {name}=0.5", where="--faults") from None
        if not 0 <= level <= 1_000:
            raise Refused("bad_fault", f"{name} must be between 0 and 1000, not {figure}", where="--faults")
        chosen[name] = level
    return Levels(**chosen)


def _offer(name: str, known: tuple[str, ...]) -> str:
    return did_you_mean(name, known) or f"; there are: {', '.join(known)}, or {EVERYTHING}, or {NOTHING}"


def drilled(seed: int, hours: float, levels: Levels | None, console: Console | None) -> SimReport:
    """The simulated time, with a bar to look at where there is a terminal."""
    if console is None or not console.is_terminal:
        return simulate(seed, hours=hours, levels=levels)
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(f"seed {seed}: {_hours(hours)}", total=1.0)
        return simulate(
            seed, hours=hours, levels=levels, on_progress=lambda share: progress.update(bar, completed=share)
        )


def words(report: SimReport, faults: str) -> str:
    """The scorecard; of a drill that failed, what broke and how to see it again."""
    struck = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in _most(report.faults))
    more = "; splitting makes new ones, and some acknowledgements never arrive"
    more = more if report.finished > report.submitted else ""
    rows = [
        ("tasks", f"{report.submitted:,} submitted, {report.finished:,} brought to an end{more}"),
        ("lost", f"{report.lost:,}"),
        ("duplicated", f"{report.duplicated:,}"),
        ("stale writes", f"{report.stale_refused:,} refused"),
        ("detected in", f"{length(report.detected_p50_ms)} (median), {length(report.detected_max_ms)} at worst"),
        ("faults", f"{sum(report.faults.values()):,}: {struck}" if struck else "none"),
    ]
    lines = [prose(value, indent=f"  {name:<12}  ", further=" " * 16) for name, value in rows]
    title = f"Seed {report.seed}, {_hours(report.hours)}: "
    if report.well:
        return "\n".join([title + paint("every promise held.", "ready"), *lines])
    broken = [
        prose(f"{one.promise}, after {length(int(one.at * 1000))}: {plain(one.seen)}", indent="  ✗ ", further="    ")
        for one in report.broken
    ]
    weather = f" --faults {faults}" if faults != EVERYTHING else ""
    again = f"  allswell drill --seed {report.seed} --hours {report.hours:g}{weather}"
    head = title + paint("a promise was broken.", "failed")
    return "\n".join([head, *broken, *lines, "The same happens again with:", again])


def _hours(hours: float) -> str:
    return "1 simulated hour" if hours == 1 else f"{hours:g} simulated hours"


def _most(faults: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(faults.items(), key=lambda one: (-one[1], one[0]))
