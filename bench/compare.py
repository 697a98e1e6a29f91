"""Compares Ariane with Apache RocketMQ, NATS JetStream and Redis Streams: one command, one load generator, one machine.

    python -m bench.compare [--quick] [--only NAME ...] [--peers apache,nats,redis] [--brokers 2] [--rounds 5]

Prints a table for each scenario, stores the samples in bench/results and writes the report into docs/performance.md. A
quick run takes about two minutes and stores nothing: it is a smoke test. Exits with 1 when Ariane itself did
not run through.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from bench.comparison import Comparison
from bench.disk_space import NoRoom, check_room
from bench.outcome import OURS, Outcome, save
from bench.profiles import NoProfiler, profiler
from bench.report.goals import goal_lines
from bench.report.java_goals import java_goal_lines
from bench.report.page import read_all, write_page
from bench.report.replication_goals import replication_goal_lines
from bench.report.table import table
from bench.scenarios.catalogue import all_scenarios
from bench.scenarios.scenario import Effort, Scenario
from bench.systems.catalogue import DEFAULT_PEERS, PEERS
from interop.processes import exit_on_sigterm

QUICK = Effort(seconds=0.3, warm_s=0.3, warm_max_s=0.3, rounds=1, is_quick=True)
QUICK_SCENARIOS = ("java-sends", "sends-async", "batches", "pulls", "push", "python-clients")
"""One of each kind: every further scenario would start all systems once more."""


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [scenario.name for scenario in all_scenarios()]
    parser.add_argument("--quick", action="store_true", help="a smoke run of about two minutes; nothing is stored")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}")
    parser.add_argument("--case", default="", metavar="PART", help="only cases with this in their names; not stored")
    parser.add_argument("--print-only", action="store_true", help="neither results nor the report are stored")
    parser.add_argument("--peers", default=",".join(DEFAULT_PEERS), help=f"some of: {', '.join(PEERS)}; none: ''")
    parser.add_argument("--brokers", type=int, default=2, help="also measure Ariane with this many broker processes")
    parser.add_argument("--profile", action="store_true", help="also print where Ariane spends its time (needs py-spy)")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each case; medians are shown")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument(
        "--warm", type=float, default=16.0, help="seconds of load before the first measurement, at least"
    )
    parser.add_argument("--warm-max", type=float, default=48.0, help="the same at most, if CPU is not steady before")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    args = options(words)
    exit_on_sigterm()
    unknown = set(filter(None, args.peers.split(","))) - set(PEERS)
    if unknown:
        print(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}", file=sys.stderr)
        return 2
    if args.profile:
        profiler()  # it would be missed only after the rounds
    peers = [PEERS[key] for key in filter(None, args.peers.split(","))]
    comparison = Comparison(peers, args.brokers, _effort(args))
    announce(comparison)
    failed = False
    store = not (args.quick or args.case or args.print_only)
    selected = args.only or (QUICK_SCENARIOS if args.quick else [scenario.name for scenario in all_scenarios()])
    for scenario in all_scenarios():
        if scenario.name in selected:
            failed |= OURS in show(comparison, scenario, store=store).missing
    if store:
        print(f"\nreport: {write_page()}")
        outcomes = read_all()
        print("\n".join(("", *java_goal_lines(outcomes), "", *goal_lines(outcomes), *replication_goal_lines(outcomes))))
    return 1 if failed else 0


def _effort(args: argparse.Namespace) -> Effort:
    if args.quick:
        return replace(QUICK, case_part=args.case, is_profiled=args.profile)
    return Effort(
        seconds=args.seconds,
        warm_s=args.warm,
        warm_max_s=args.warm_max,
        rounds=args.rounds,
        case_part=args.case,
        is_profiled=args.profile,
    )


def announce(comparison: Comparison) -> None:
    for name, version in comparison.versions.items():
        print(f"{name}: {version}")
    for name, reason in comparison.missing.items():
        print(f"{name}: MISSING, {reason}")


def show(comparison: Comparison, scenario: Scenario, *, store: bool) -> Outcome:
    check_room(scenario.room_gb)
    print(f"\n{scenario.title}", flush=True)
    outcome = comparison.run(scenario)
    print("\n".join(table(outcome, scenario.columns)), flush=True)
    for name, reason in outcome.missing.items():
        print(f"{name}: MISSING, {reason}")
    for note in outcome.notes():
        print(f"note: {note[:200]}")
    print(f"took {outcome.took_s:.0f} s", flush=True)
    if store and outcome.samples:
        save(outcome)
    return outcome


def run_as_program(words: Sequence[str] | None = None) -> None:
    try:
        sys.exit(main(words))
    except (NoProfiler, NoRoom) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    run_as_program()
