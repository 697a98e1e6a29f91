"""Checks Ariane's nameserver with Apache brokers, clients of other vendors and mqadmin.

    python -m interop.nameserver                        # only these checks; make interop runs them and the broker's
    python -m interop.nameserver --nameserver apache    # the same checks against Apache's own nameserver

Needs a JDK 17 and Maven; the Go and Node clients are skipped where Go or Node is not installed. Takes about a
minute, most of it start-up of Java programs. Exits 1 if a check failed.
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from interop.access_checks import AccessChecks
from interop.apache import start_broker, start_nameserver
from interop.broker.servers import COMMAND
from interop.broker_checks import MASTER_SETTINGS, BrokerChecks, plan_broker
from interop.client_checks import ClientChecks
from interop.mqadmin import open_mqadmin
from interop.mqadmin_checks import MqadminChecks
from interop.processes import LOOPBACK, InteropError, exit_on_sigterm, free_port, running
from interop.report import Report

# Takes a port and a directory for files.
Nameserver = Callable[[int, Path], AbstractContextManager[object]]


@contextlib.contextmanager
def our_nameserver(port: int, home: Path) -> Iterator[None]:
    home.mkdir(exist_ok=True)
    command = [*COMMAND, "namesrv", "--listen", f"{LOOPBACK}:{port}"]
    with running(command, ready="ready", log=home / "namesrv.log"):
        yield


def run_checks(nameserver: Nameserver, settings_are_fixed: bool, work: Path) -> Report:
    port = free_port()
    address = f"{LOOPBACK}:{port}"
    report = Report()
    master = plan_broker(address, "interop-a", MASTER_SETTINGS)
    with open_mqadmin(address, work / "mqadmin") as admin, contextlib.ExitStack() as first_life:
        brokers = BrokerChecks(admin, master, "JavaJSON", work)
        first_life.enter_context(nameserver(port, work / "namesrv"))
        print(f"nameserver on port {port}", flush=True)
        with contextlib.ExitStack() as broker_life:
            broker_life.enter_context(start_broker(master, work / "master"))
            MqadminChecks(admin, master, settings_are_fixed).add_to(report)
            ClientChecks(admin, master.cluster, work).add_to(report)
            brokers.add_to(report)
            first_life.close()
            with nameserver(port, work / "namesrv"):
                report.check("broker comes back after a restart of the nameserver", brokers.comes_back)
                broker_life.close()
                report.check("last broker leaves", brokers.is_gone)
    if settings_are_fixed:  # Apache's nameserver has no access control
        AccessChecks(work / "access").add_to(report)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description="Real RocketMQ programs against a nameserver.")
    parser.add_argument(
        "--nameserver", choices=("ariane", "apache"), default="ariane", help="whose nameserver to check"
    )
    ours = parser.parse_args().nameserver == "ariane"
    exit_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="ariane-interop-") as directory:
        try:
            return run_checks(our_nameserver if ours else start_nameserver, ours, Path(directory)).finish()
        except InteropError as problem:
            print(problem, file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
