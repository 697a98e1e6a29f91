"""Checks that clients find their broker through the nameserver, send messages and consume them."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from interop.apache import CLIENT_VERSION, Serialisation, compile_java, fetch, java
from interop.mqadmin import Mqadmin
from interop.other_clients import GO_EXTRA_MESSAGES, ClientProgram, run_go, run_node
from interop.report import Report, expect_in

PROGRAM = Path(__file__).resolve().parent / "java" / "SendAndConsume.java"
MESSAGES = 20


@dataclass(frozen=True, slots=True)
class ClientChecks:
    admin: Mqadmin
    cluster: str
    work: Path

    def add_to(self, report: Report) -> None:
        report.check("Java client, JSON headers", lambda: self.java_client("JSON"))
        report.check("Java client, binary headers", lambda: self.java_client("ROCKETMQ"))
        self.add_client(report, "go", run_go, MESSAGES + GO_EXTRA_MESSAGES)
        self.add_client(report, "node", run_node, MESSAGES)

    def java_client(self, serialisation: Serialisation) -> None:
        classpath = compile_java([PROGRAM], fetch("client", CLIENT_VERSION), self.work / "classes")
        done = java(
            "SendAndConsume",
            self.admin.nameserver,
            f"Java{serialisation}",
            str(MESSAGES),
            classpath=classpath,
            home=self.work / "client",
            properties={"rocketmq.serialize.type": serialisation},
        )
        expect_in(f"consumed {MESSAGES}\n", f"{done.stdout}\n{done.stderr}")

    def add_client(self, report: Report, tool: str, run: ClientProgram, expected: int) -> None:
        def check() -> None:
            topic = f"{tool}_topic"
            # These clients do not create topics themselves.
            self.admin.run("updateTopic", "-c", self.cluster, "-t", topic)
            done = run(self.admin.nameserver, topic, MESSAGES, self.work)
            expect_in(f"consumed {expected}\n", f"{done.stdout}\n{done.stderr}")

        if shutil.which(tool) is None:
            report.skip(f"{tool} client", f"{tool} is not installed")
        else:
            report.check(f"{tool} client", check)
