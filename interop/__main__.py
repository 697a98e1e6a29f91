"""Runs all interoperability checks (nameserver, brokers and clients in both directions, mqadmin, masters and slaves)
and writes docs/compatibility.md.

    make interop

Needs a JDK 17, Maven and Go; the Node client is skipped where Node is not installed. The programs are downloaded from
the package registries once and cached in $ARIANE_CACHE. Takes about twenty minutes, most
of it for masters and slaves; exits 1 if a check failed.
"""

import sys
import tempfile
from pathlib import Path

from interop.broker.kinds import KINDS
from interop.broker.suite import PAIRS, run_suite
from interop.nameserver import our_nameserver, run_checks
from interop.page import PAGE, write_page
from interop.processes import InteropError, exit_on_sigterm
from interop.replication.suite import PAIRS as PAIRS_OF_BROKERS
from interop.replication.suite import run_replication


def main() -> int:
    exit_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="ariane-interop-") as directory:
        work = Path(directory)
        tables = run_suite(PAIRS, list(KINDS), work)
        (work / "nameserver").mkdir()
        nameserver = run_checks(our_nameserver, True, work / "nameserver")
        tables += run_replication(PAIRS_OF_BROKERS, work)
    status = nameserver.finish()
    for table in tables:
        print(f"\n{table.markdown()}")
    write_page(nameserver, tables)
    failures = [failure for table in tables for failure in table.failures()]
    print(*failures, f"{PAGE} is written.", sep="\n\n")
    return 1 if failures else status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InteropError as problem:
        print(problem, file=sys.stderr)
        sys.exit(1)
