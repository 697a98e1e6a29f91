"""Metrics of replication, at a master and at a slave that run."""

from pathlib import Path
from typing import Any

import pytest

from ariane.broker.settings import BrokerRole, MetricsExporter
from ariane.model.topic import TopicConfig
from ariane.replication import metadata
from tests.broker.brokers import RunningBroker
from tests.broker.in_process_broker import TOPIC, a_send
from tests.broker.metrics_fixtures import MonitoredBroker, Samples, monitored_broker
from tests.broker.test_server_replication import NO_MASTER, a_caller, a_pair
from tests.transport.peers import until

MONITORED: dict[str, Any] = {"metrics_exporter": MetricsExporter.PROM, "metrics_port": 0}


@pytest.fixture(autouse=True)
def frequent_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "FIRST_SYNC_S", 0.02)
    monkeypatch.setattr(metadata, "SYNC_INTERVAL_S", 0.02)


async def scraped(broker: RunningBroker) -> Samples:
    async with a_caller() as caller:
        return await MonitoredBroker(broker, caller).scrape()


async def test_a_pair_shows_its_roles_and_how_far_the_slave_is(tmp_path: Path) -> None:
    async with a_pair(tmp_path, slave=MONITORED, **MONITORED) as pair:
        for number in range(3):
            await pair.caller.call(pair.master.address, a_send(b"%d" % number))
        await pair.is_level()
        follower, copies = pair.slave.broker.replication.slave, pair.slave.broker.replication.metadata
        assert follower is not None
        assert copies is not None
        await until(lambda: follower.status.behind_bytes == 0)
        await until(lambda: copies.synced)
        of_master, of_slave = await scraped(pair.master), await scraped(pair.slave)
        end = pair.master.parts.store.store.components.commit_log.max_offset
    assert of_master.value("rocketmq_ha_role", role="SYNC_MASTER") == 1
    assert of_master.value("rocketmq_ha_connected_slaves") == of_master.value("rocketmq_ha_in_sync_slaves") == 1
    assert of_master.value("rocketmq_ha_slave_lag_bytes", member="1") == 0
    assert of_master.value("rocketmq_ha_slave_lag_seconds", member="1") == 0
    assert of_master.value("rocketmq_ha_sent_bytes_total") == end
    assert of_master.value("rocketmq_ha_ack_seconds_count") == 3
    assert of_master.value("rocketmq_ha_ack_seconds_sum") > 0
    assert of_master.of("rocketmq_ha_following") == {}, "not of a master"
    assert of_slave.value("rocketmq_ha_role", role="SLAVE") == 1
    assert of_slave.value("rocketmq_ha_following") == 1
    assert of_slave.value("rocketmq_ha_slave_lag_bytes", member="1") == 0
    assert of_slave.value("rocketmq_ha_slave_lag_seconds", member="1") >= 0
    assert of_slave.value("rocketmq_ha_metadata_age_seconds") >= 0
    assert of_slave.of("rocketmq_ha_connected_slaves") == {}
    disk = {"storage_type": "local", "storage_medium": "disk"}
    assert of_slave.value("rocketmq_storage_dispatch_behind_bytes", **disk) == 0


async def test_sends_that_nobody_waited_for_are_no_waits(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path, role=BrokerRole.SYNC_MASTER) as broker:
        broker.broker.parts.topics.put(TopicConfig(topic_name=TOPIC))
        await broker.call(a_send(b"x"))
        page = await broker.scrape()
    assert page.value("rocketmq_ha_ack_seconds_count") == 0
    assert page.value("rocketmq_ha_connected_slaves") == 0
    assert page.of("rocketmq_ha_slave_lag_bytes") == {}


async def test_a_slave_without_a_master_does_not_follow_and_what_it_does_not_know_is_left_out(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path, role=BrokerRole.SLAVE, broker_id=1, replication=NO_MASTER) as slave:
        page = await slave.scrape()
    assert page.value("rocketmq_ha_following") == 0
    for name in ("slave_lag_bytes", "slave_lag_seconds", "metadata_age_seconds"):
        assert page.of(f"rocketmq_ha_{name}") == {}
