"""Checks of mqadmin against a nameserver: each command that uses the nameserver, and the expected output."""

import re
from dataclasses import dataclass

from interop.apache import BrokerPlan
from interop.mqadmin import Mqadmin
from interop.report import Report, expect, expect_in

TOPIC = "AdminTopic"
QUEUES = 4
ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
READ_ONLY, READ_AND_WRITE = 4, 6


@dataclass(frozen=True, slots=True)
class MqadminChecks:
    admin: Mqadmin
    broker: BrokerPlan
    # Ariane refuses to change its settings over the wire (CVE-2023-37582); Apache's nameserver does change them.
    settings_are_fixed: bool

    def add_to(self, report: Report) -> None:
        """The order matters: later commands use what earlier ones created."""
        report.check("mqadmin clusterList", self.cluster_list)
        report.check("mqadmin updateTopic", self.update_topic)
        report.check("mqadmin topicList", self.topic_list)
        report.check("mqadmin topicRoute", self.topic_route)
        report.check("mqadmin topicRoute of no topic", self.no_route)
        report.check("mqadmin topicClusterList", self.topic_cluster_list)
        report.check("mqadmin topicStatus", self.topic_status)
        report.check("mqadmin statsAll", self.stats_all)
        report.check("mqadmin updateKvConfig", self.update_kv_config)
        report.check("mqadmin deleteKvConfig", self.delete_kv_config)
        report.check("mqadmin updateOrderConf", self.update_order_conf)
        report.check("mqadmin wipeWritePerm", self.wipe_write_perm)
        report.check("mqadmin addWritePerm", self.add_write_perm)
        report.check("mqadmin getNamesrvConfig", self.get_namesrv_config)
        if self.settings_are_fixed:
            report.check("mqadmin updateNamesrvConfig is refused", self.refuse_namesrv_config)
        else:
            report.check("mqadmin updateNamesrvConfig", self.update_namesrv_config)
        report.check("mqadmin deleteTopic", self.delete_topic)

    def cluster_list(self) -> None:
        rows = self.admin.cluster_rows()
        expected = [self.broker.cluster, self.broker.name, "0", self.broker.address]
        expect(expected in rows, f"no {expected} in {rows}")

    def update_topic(self) -> None:
        """Looks up the brokers of the cluster at the nameserver, then creates the topic on each."""
        sizes = ["-r", str(QUEUES), "-w", str(QUEUES)]
        output = self.admin.run("updateTopic", "-c", self.broker.cluster, "-t", TOPIC, *sizes)
        expect_in(f"create topic to {self.broker.address} success", output)

    def topic_list(self) -> None:
        topics = set(self.admin.run("topicList").split())
        # The system topics came with the broker's first registration.
        expected = {TOPIC, "SELF_TEST_TOPIC", self.broker.name, self.broker.cluster}
        expect(expected <= topics, f"{expected - topics} not in {topics}")

    def topic_route(self) -> None:
        output = self.admin.run("topicRoute", "-t", TOPIC)
        expect_in(self.broker.address, output)
        expect(self.number("readQueueNums", output) == QUEUES, output)
        expect(self.number("writeQueueNums", output) == QUEUES, output)
        expect(self.number("perm", output) == READ_AND_WRITE, output)

    def no_route(self) -> None:
        expect_in("CODE: 17", self.admin.run("topicRoute", "-t", "NoSuchTopic"))

    def topic_cluster_list(self) -> None:
        expect(self.broker.cluster in self.admin.run("topicClusterList", "-t", TOPIC).split(), "cluster not listed")

    def topic_status(self) -> None:
        lines = [line for line in self.admin.run("topicStatus", "-t", TOPIC).splitlines() if self.broker.name in line]
        expect(len(lines) == QUEUES, f"{len(lines)} queues, not {QUEUES}")

    def stats_all(self) -> None:
        expect(TOPIC in self.admin.run("statsAll").split(), f"{TOPIC} not in the statistics")

    def update_kv_config(self) -> None:
        """mqadmin can read only one kind of value back: the order configuration, so the check uses that."""
        output = self.admin.run("updateKvConfig", "-s", ORDER_NAMESPACE, "-k", TOPIC, "-v", f"{self.broker.name}:2")
        expect_in("success", output)
        expect_in(f"orderConf=[{self.broker.name}:2]", self.order_conf("get"))

    def delete_kv_config(self) -> None:
        expect_in("success", self.admin.run("deleteKvConfig", "-s", ORDER_NAMESPACE, "-k", TOPIC))
        expect_in("CODE: 22", self.order_conf("get"))

    def update_order_conf(self) -> None:
        expect_in("success", self.order_conf("put", "-v", f"{self.broker.name}:3"))
        expect_in(f"orderConf=[{self.broker.name}:3]", self.order_conf("get"))
        expect_in("success", self.order_conf("delete"))

    def order_conf(self, method: str, *options: str) -> str:
        return self.admin.run("updateOrderConf", "-t", TOPIC, "-m", method, *options)

    def wipe_write_perm(self) -> None:
        output = self.admin.run("wipeWritePerm", "-b", self.broker.name)
        found = re.search(r"OK, (\d+)", output)
        expect(found is not None and int(found[1]) > 0, f"no topic wiped: {output}")
        expect(self.number("perm", self.admin.run("topicRoute", "-t", TOPIC)) == READ_ONLY, "still writable")

    def add_write_perm(self) -> None:
        output = self.admin.run("addWritePerm", "-b", self.broker.name)
        found = re.search(r"OK, (\d+)", output)
        expect(found is not None and int(found[1]) > 0, f"no topic given back: {output}")
        expect(self.number("perm", self.admin.run("topicRoute", "-t", TOPIC)) == READ_AND_WRITE, "still not writable")

    def get_namesrv_config(self) -> None:
        port = self.admin.nameserver.rpartition(":")[2]
        found = re.search(r"listenPort\s*=\s*(\d+)", self.admin.run("getNamesrvConfig"))
        expect(found is not None and found[1] == port, f"listenPort is not {port}")

    def update_namesrv_config(self) -> None:
        expect_in("success", self.order_message_enable())
        expect(self.orders_enabled() == "true", "setting not changed")

    def refuse_namesrv_config(self) -> None:
        before = self.orders_enabled()
        expect_in("CODE: 3 ", self.order_message_enable())
        expect(before == self.orders_enabled() == "false", "setting changed")

    def order_message_enable(self) -> str:
        return self.admin.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")

    def orders_enabled(self) -> str | None:
        found = re.search(r"orderMessageEnable\s*=\s*(\w+)", self.admin.run("getNamesrvConfig"))
        return found[1] if found else None

    def delete_topic(self) -> None:
        output = self.admin.run("deleteTopic", "-c", self.broker.cluster, "-t", TOPIC)
        expect_in(f"delete topic [{TOPIC}] from NameServer success", output)
        expect_in("CODE: 17", self.admin.run("topicRoute", "-t", TOPIC))

    @staticmethod
    def number(name: str, output: str) -> int | None:
        """The first value of that name in the route that topicRoute prints as JSON."""
        found = re.search(rf'"{name}"\s*:\s*(\d+)', output)
        return int(found[1]) if found else None
