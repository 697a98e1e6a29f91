"""Checks that Apache brokers register at the nameserver, stay registered, and unregister."""

from dataclasses import dataclass
from pathlib import Path

from interop.apache import BROKER_PORT_OFFSETS, BrokerPlan, start_broker
from interop.mqadmin import Mqadmin
from interop.processes import free_port, wait_until
from interop.report import Report, expect, expect_in

# Every broker has this topic from its start.
COMMON_TOPIC = "SELF_TEST_TOPIC"
# The shortest allowed interval, so that no check waits for half a minute. Without forceRegister=false a broker would
# register each time, even if the nameserver already has its data version.
MASTER_SETTINGS = {
    "registerNameServerPeriod": "10000",
    "forceRegister": "false",
    # The first transaction check creates a topic and so causes a full registration, by default after a minute. That
    # registration would restore write permissions in the middle of the check that has just wiped them.
    "transactionCheckInterval": "3600000",
}
SLAVE_SETTINGS = {**MASTER_SETTINGS, "brokerId": "1", "brokerRole": "SLAVE", "compressedRegister": "true"}


def plan_broker(nameserver: str, name: str, settings: dict[str, str]) -> BrokerPlan:
    port = free_port(BROKER_PORT_OFFSETS)
    return BrokerPlan(nameserver=nameserver, port=port, settings=settings, cluster="InteropCluster", name=name)


@dataclass(frozen=True, slots=True)
class BrokerChecks:
    """Checks that run while `master` is up; `seen_topic` is a topic that it has and a new broker does not have."""

    admin: Mqadmin
    master: BrokerPlan
    seen_topic: str
    work: Path

    def add_to(self, report: Report) -> None:
        report.check("slave broker with compressed registration", self.slave)
        report.check("second broker joins and leaves", self.second_broker)

    def slave(self) -> None:
        """A slave finds its master through the nameserver; its tables then follow the master's."""
        plan = plan_broker(self.admin.nameserver, self.master.name, SLAVE_SETTINGS)
        home = self.work / "slave"
        with start_broker(plan, home):
            self.expect_listed(plan, broker_id=1)
            copied = home / "store" / "config" / "topics.json"
            wait_until(
                lambda: copied.exists() and self.seen_topic in copied.read_text(), "a copy of the master's topics", 60.0
            )
            expect_in(f'1:"{plan.address}"', self.route(self.seen_topic))
        expect_in(f'0:"{self.master.address}"', self.route(self.seen_topic))
        expect(plan.address not in self.route(self.seen_topic), "the slave is still in the route")

    def second_broker(self) -> None:
        plan = plan_broker(self.admin.nameserver, f"{self.master.name}-too", MASTER_SETTINGS)
        with start_broker(plan, self.work / "second"):
            self.expect_listed(plan, broker_id=0)
            expect_in(plan.address, self.route(COMMON_TOPIC))
            expect_in(self.master.address, self.route(COMMON_TOPIC))
        route = self.route(COMMON_TOPIC)
        expect(plan.address not in route, "the second broker is still in the route")
        expect_in(self.master.address, route)

    def comes_back(self) -> None:
        """After a restart of the nameserver, which loses all routes: its version query makes the broker register."""
        wait_until(lambda: self.master.address in self.route(self.seen_topic), "the broker at the new nameserver", 60.0)

    def is_gone(self) -> None:
        """After the broker has stopped."""
        expect_in("CODE: 17", self.admin.run("topicRoute", "-t", COMMON_TOPIC))

    def expect_listed(self, plan: BrokerPlan, broker_id: int) -> None:
        expected = [plan.cluster, plan.name, str(broker_id), plan.address]
        expect(expected in self.admin.cluster_rows(), f"no {expected} in clusterList")

    def route(self, topic: str) -> str:
        """The route as mqadmin prints it, without the white space."""
        return "".join(self.admin.run("topicRoute", "-t", topic).split())
