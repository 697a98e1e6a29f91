"""The store on this disk: appends, group commit, many queues, recovery, reads; each beside the bare system call.

    python -m bench.store [--quick] [--only append ...]

Works in a directory of its own under the current one, needs up to 6 GiB there and removes it in the end. CPU is this
process's, user and kernel. Compare ratios within one run: disk and machine may be shared.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import store_append, store_group_commit, store_queues, store_reads, store_recovery

REPORTS = {
    "append": store_append.report,
    "commit": store_group_commit.report,
    "queues": store_queues.report,
    "recovery": store_recovery.report,
    "reads": store_reads.report,
}


@contextmanager
def scratch() -> Iterator[Path]:
    """Here and not where temporary files go: that may be memory."""
    directory = Path(tempfile.mkdtemp(prefix="bench-store-", dir="."))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="less of everything: 45 seconds, 1 GiB")
    options.add_argument("--only", nargs="+", choices=REPORTS, default=list(REPORTS))
    chosen = options.parse_args()
    began = time.perf_counter()
    for name in chosen.only:
        with scratch() as directory:
            for line in REPORTS[name](directory, quick=chosen.quick):
                print(line, flush=True)
        print(f"   {load()}\n", flush=True)
    print(f"{time.perf_counter() - began:.0f} s in all")


def load() -> str:
    """How busy the machine is: with more runnable processes than cores, wall times tell little."""
    minute, five, _ = os.getloadavg()
    return f"load {minute:.1f} (5 minutes: {five:.1f}) on {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
