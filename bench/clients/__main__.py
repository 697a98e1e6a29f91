"""The process of one client: a plan on standard input, a result as the last line of standard output."""

import sys
from importlib import import_module

import msgspec

from bench.clients.plan import ClientPlan

MODULES = {"ariane": "bench.clients.ariane_client", "rocketmq": "bench.clients.cpp_client"}


def main() -> None:
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=ClientPlan)
    # Imported by name: the other client need not be installed, and would cost memory.
    result = import_module(MODULES[plan.client]).run(plan)
    print("\n" + msgspec.json.encode(result).decode(), flush=True)


if __name__ == "__main__":
    main()
