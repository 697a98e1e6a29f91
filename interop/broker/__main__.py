"""Command line for the broker checks, or a selection of them, without writing docs/compatibility.md.

    python -m interop.broker --pair java4:apache4 --kind ordered     # one client against one server, one check
    python -m interop.broker --pair mqadmin:ariane                   # mqadmin's commands against one broker

Clients: java47, java4, java5, go, ariane, mqadmin, or two as in java4>ariane (the first sends, the second consumes).
Servers: ariane, apache4, apache5; with ACL and TLS: ariane-secured, apache4-secured. Exits 1 if a check failed.
"""

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from interop.broker.kinds import KINDS
from interop.broker.suite import PAIRS, run_suite
from interop.processes import InteropError, exit_on_sigterm


def main() -> int:
    parser = argparse.ArgumentParser(description="Brokers and clients of different vendors.")
    parser.add_argument("--pair", action="append", metavar="CLIENT:SERVER", help="only this pair; may be repeated")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this check; may be repeated")
    parser.add_argument("--keep", type=Path, help="an empty directory for logs and stores, kept at the end")
    options = parser.parse_args()
    exit_on_sigterm()
    with contextlib.ExitStack() as stack:
        work = (
            options.keep.resolve()
            if options.keep
            else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ariane-interop-")))
        )
        tables = run_suite(_pairs(options.pair) or PAIRS, options.kind or list(KINDS), work)
    failures = [failure for table in tables for failure in table.failures()]
    print(*failures, sep="\n\n")
    return 1 if failures else 0


def _pairs(texts: list[str] | None) -> dict[str, list[str]]:
    pairs: dict[str, list[str]] = {}
    for text in texts or []:
        client, _, server = text.partition(":")
        pairs.setdefault(server, []).append(client)
    return pairs


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InteropError as problem:
        print(problem, file=sys.stderr)
        sys.exit(1)
