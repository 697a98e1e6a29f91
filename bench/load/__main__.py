"""The generator's process: a plan on standard input, a result on standard output."""

import gc
import sys

import msgspec

from bench.load.loops import run
from bench.load.plan import LoadPlan


def main() -> None:
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=LoadPlan)
    gc.disable()  # it makes no cycles, and a pause here would be taken for one of the server
    sys.stdout.buffer.write(msgspec.json.encode(run(plan)))


if __name__ == "__main__":
    main()
