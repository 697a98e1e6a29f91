"""The load generator process: a plan on standard input, a result on standard output."""

import gc
import sys

import msgspec

from bench.load.loops import run
from bench.load.plan import LoadPlan


def main() -> None:
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=LoadPlan)
    gc.disable()  # it creates no reference cycles, and a pause here would look like a pause of the server
    sys.stdout.buffer.write(msgspec.json.encode(run(plan)))


if __name__ == "__main__":
    main()
