"""`python -m allswell.testing.sim --seed 7 --hours 20 --json`: one simulated day, and its scorecard."""

from __future__ import annotations

import argparse
import sys

import msgspec

from allswell.testing.sim import simulate
from allswell.testing.sim.report import SimReport


def main() -> int:
    """Simulate, print the scorecard, and say by the exit code whether every promise held."""
    parser = argparse.ArgumentParser(prog="python -m allswell.testing.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, counting up from --seed")
    parser.add_argument("--hours", type=float, default=20.0)
    parser.add_argument("--json", action="store_true", help="one JSON object a seed")
    chosen = parser.parse_args()
    well = True
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        report = simulate(seed, hours=chosen.hours)
        well = well and report.well
        text = msgspec.json.encode(report).decode() if chosen.json else _told(report)
        sys.stdout.write(text + "\n")
    return 0 if well else 1


def _told(report: SimReport) -> str:
    verdict = "all is well" if report.well else "a promise was broken"
    kept = f"lost {report.lost}, duplicated {report.duplicated}, stale writes refused {report.stale_refused}"
    lines = [
        f"seed {report.seed}, {report.hours:g} h: {verdict}",
        f"  submitted {report.submitted}, finished {report.finished}, {kept}",
        f"  detected in {report.detected_p50_ms} ms (p50), {report.detected_max_ms} ms (max); digest {report.digest}",
    ]
    lines += [f"  {broken.at:.1f} s: {broken.promise}: {broken.seen}" for broken in report.broken]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
