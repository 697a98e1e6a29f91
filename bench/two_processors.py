"""What a second processor of this machine brings by itself: processes that only copy memory, one and then two of them.

    python -m bench.two_processors <processor>

As a program it is one of them: it waits for a line, copies, and says how long that took. Processors share the way to
memory, with strangers, too, where the machine is a virtual one; a reader that is mostly copies can hardly gain more.
"""

import os
import statistics
import subprocess
import sys
import time

import numpy as np

_BLOCK_BYTES = 64 * 1024 * 1024  # more than caches hold
_COPIES = 60
_ROUNDS = 7


def gain_of_copies() -> float:
    """How many times as much two processes copy in the time of one: the median of some rounds. 1 where there is only
    one processor."""
    processors = sorted(os.sched_getaffinity(0))[:2]
    gains = [_seconds(processors[:1]) / _seconds(processors) for _ in range(_ROUNDS)]
    return len(processors) * statistics.median(gains)


def _seconds(processors: list[int]) -> float:
    """Until the last of the processes was done, one on each of the processors."""
    commands = [[sys.executable, "-m", "bench.two_processors", str(processor)] for processor in processors]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for command in commands]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:  # all of them, before one is waited for
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    return max(float(process.communicate()[0]) for process in processes)


def _copy(processor: int) -> None:
    os.sched_setaffinity(0, {processor})
    source = np.zeros(_BLOCK_BYTES, np.uint8)
    target = np.ones_like(source)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    for _ in range(_COPIES):
        np.copyto(target, source)
    print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    _copy(int(sys.argv[1]))
