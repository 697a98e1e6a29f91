"""Writes docs/compatibility.md from the results of a full run. No dates, so that an equal result leaves the file
unchanged."""

from collections.abc import Sequence
from pathlib import Path

from interop.apache import CLIENT_VERSION, OLD_CLIENT_VERSION, SERVER_VERSION, VERSION_5
from interop.broker.table import Table
from interop.other_clients import GO_CLIENT_VERSION, NODE_CLIENT_VERSION
from interop.report import Report

PAGE = Path(__file__).resolve().parents[1] / "docs" / "compatibility.md"
HEAD = f"""# Compatibility

Made by `make interop`, which runs programs that nobody here wrote against ours, in both directions, and writes down
what came of it. Do not edit it by hand.

| Program | Version | From |
| --- | --- | --- |
| Apache RocketMQ nameserver and broker | {SERVER_VERSION} and {VERSION_5} | Maven |
| Apache RocketMQ client for Java, over remoting | {OLD_CLIENT_VERSION}, {CLIENT_VERSION} and {VERSION_5} | Maven |
| Apache RocketMQ mqadmin | {CLIENT_VERSION} | Maven |
| Apache RocketMQ client for Go | {GO_CLIENT_VERSION} | Go modules |
| ali-ons, a client for Node | {NODE_CLIENT_VERSION} | npm |

A column with two clients says that the first sent and the second consumed. "Two members share the queues" has one of
each in one group. Where Apache's own client is listed against Apache's own broker, it shows that the check asks for the
right thing. "With ACL and TLS": every request is signed, and the broker takes encrypted connections only. Numbers in
brackets lead to the reason below the table. A part of this runs in `make test` with the C++ client from PyPI:
tests/broker/test_server_with_cpp_client.py.
"""


def write_page(nameserver: Report, tables: Sequence[Table]) -> None:
    PAGE.write_text("\n".join([HEAD, *(table.markdown() for table in tables), _nameserver_part(nameserver)]))


def _nameserver_part(report: Report) -> str:
    lines = [
        "## Apache's brokers, clients and mqadmin at the nameserver of Ariane",
        "",
        "| Check | |",
        "| --- | --- |",
        *(f"| {name} | {'yes' if verdict == 'pass' else verdict} |" for name, verdict, _ in report.rows),
    ]
    return "\n".join(lines) + "\n"
