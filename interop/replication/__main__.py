"""Command line for the checks of masters and slaves, or a selection of them, without writing docs/compatibility.md.

    python -m interop.replication                                        # all pairs, about twelve minutes
    python -m interop.replication --pair ariane:apache4 --part traffic   # our master, Apache's slave
    python -m interop.replication --pair ariane:ariane --part go         # the Go client, when the master is dead

Pairs are MASTER:SLAVE of ariane, apache4 and apache5. Exits 1 if a check failed.
"""

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from interop.processes import InteropError, exit_on_sigterm
from interop.replication.suite import PAIRS, run_replication


def main() -> int:
    parser = argparse.ArgumentParser(description="Masters and slaves of different vendors.")
    parser.add_argument("--pair", action="append", choices=PAIRS, help="only this pair; may be repeated")
    parser.add_argument(
        "--part", action="append", help="only this part: traffic, mqadmin, or a client; may be repeated"
    )
    parser.add_argument("--keep", type=Path, help="an empty directory for logs and stores, kept at the end")
    options = parser.parse_args()
    exit_on_sigterm()
    pairs = {name: PAIRS[name] for name in options.pair or PAIRS}
    if options.part:
        pairs = {name: [part for part in parts if part in options.part] for name, parts in pairs.items()}
    with contextlib.ExitStack() as stack:
        work = (
            options.keep.resolve()
            if options.keep
            else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ariane-interop-")))
        )
        tables = run_replication({name: parts for name, parts in pairs.items() if parts}, work)
    for table in tables:
        print(f"\n{table.markdown()}")
    failures = [failure for table in tables for failure in table.failures()]
    print(*failures, sep="\n\n")
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InteropError as problem:
        print(problem, file=sys.stderr)
        sys.exit(1)
