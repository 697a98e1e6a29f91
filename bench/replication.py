"""Masters and slaves of Ariane beside those of Apache RocketMQ: the scenarios of bench.compare that have slaves.

    python -m bench.replication [--quick] [--only NAME ...] [--rounds 3]

Takes the options of bench.compare, with others as defaults. Master, slaves and generator share the machine's cores, so
a rate with slaves is bounded by them: compare CPU.
"""

import sys

from bench.compare import run_as_program
from bench.scenarios.catalogue import replication_scenarios

DEFAULTS = ("--peers", "apache", "--brokers", "1", "--rounds", "3", "--seconds", "1.5", "--warm-max", "32")

if __name__ == "__main__":
    names = [scenario.name for scenario in replication_scenarios()]
    run_as_program([*DEFAULTS, "--only", *names, *sys.argv[1:]])
