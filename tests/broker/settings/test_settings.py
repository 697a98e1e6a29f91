"""Broker settings: Apache's own files work, and invalid settings are rejected with a hint."""

from pathlib import Path
from typing import Any

import pytest

from ariane.broker.settings import BrokerSettings
from ariane.broker.settings.rocketmq_keys import UNSUPPORTED
from ariane.errors import SettingsError
from ariane.settings import LoadedSettings, describe, load, to_properties
from ariane.store.settings import FlushDiskType

# The file that Apache ships as conf/broker.conf, and what its tutorials add to it.
SAMPLE = """\
# Licensed to the Apache Software Foundation (ASF) under one or more

brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
namesrvAddr=10.0.0.1:9876;10.0.0.2:9876
brokerIP1=10.0.0.5
listenPort=10911
defaultTopicQueueNums=4
autoCreateTopicEnable=true
storePathRootDir=/srv/rocketmq/store
mappedFileSizeCommitLog=1073741824
diskMaxUsedSpaceRatio=88
maxMessageSize=65536
sendMessageThreadPoolNums=128
transactionCheckInterval=30000
"""


def loaded(text: str, tmp_path: Path, name: str = "broker.conf", **environ: str) -> LoadedSettings[BrokerSettings]:
    file = tmp_path / name
    file.write_text(text)
    return load(BrokerSettings, section="broker", file=file, environ=environ, flags={}, unsupported=UNSUPPORTED)


def settings_error(**settings: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        BrokerSettings(**settings)
    return str(caught.value)


def test_a_broker_conf_of_apache_works_as_it_is(tmp_path: Path) -> None:
    found = loaded(SAMPLE, tmp_path)
    settings = found.settings
    assert settings.nameservers == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert str(settings.advertised) == "10.0.0.5:10911"
    assert (settings.name, settings.default_topic_queues, settings.auto_create_topics) == ("broker-a", 4, True)
    assert settings.transaction_check_interval_s == 30
    assert settings.store.root == Path("/srv/rocketmq/store")
    assert settings.store.retention_hours == 48
    assert settings.store.disk_max_used_ratio == pytest.approx(0.88)
    assert settings.store.flush_disk_type is FlushDiskType.ASYNC
    assert [warning.split(": ", 2)[1] for warning in found.warnings] == ["sendMessageThreadPoolNums is not used"]


def test_toml_variables_and_properties_reach_the_store_within_the_broker(tmp_path: Path) -> None:
    text = "[broker]\nname = 'b'\n[broker.store]\nretention_hours = 1\n"
    found = loaded(text, tmp_path, "a.toml", ARIANE_BROKER__STORE__SEGMENT_BYTES="8192")
    assert (found.settings.name, found.settings.store.retention_hours) == ("b", 1)
    assert found.settings.store.segment_bytes == 8192
    assert found.origins["store.segment_bytes"] == "ARIANE_BROKER__STORE__SEGMENT_BYTES"
    assert found.origins["store.retention_hours"].endswith("a.toml:4")


def test_a_broker_alone_syncs_before_it_answers() -> None:
    assert BrokerSettings().store.flush_disk_type is FlushDiskType.SYNC


@pytest.mark.parametrize("old", ["brokerip1", "autoCreateTopicEnabled"])
def test_a_misspelt_key_is_reported_with_the_nearest_key(tmp_path: Path, old: str) -> None:
    with pytest.raises(SettingsError, match="did you mean"):
        loaded(f"{old}=1\n", tmp_path)


def test_no_key_is_both_used_and_unused_and_each_has_a_reason() -> None:
    used = [key.name for declared in describe(BrokerSettings) for key in declared.keys]
    assert len(used) == len(set(used))
    assert not set(used) & set(UNSUPPORTED)
    assert all(len(reason) > 15 and not reason.endswith(".") for reason in UNSUPPORTED.values())


TRANSFERRED = ("CountOnMessageInMemory", "BytesOnMessageInMemory", "CountOnMessageInDisk", "BytesOnMessageInDisk")


def test_pull_limits_are_those_of_apache_and_configurable(tmp_path: Path) -> None:
    properties = to_properties(BrokerSettings())
    assert [properties[f"maxTransfer{name}"] for name in TRANSFERRED] == ["32", "262144", "8", "65536"]
    lines = (f"maxTransfer{name}={number}\n" for number, name in enumerate(TRANSFERRED, 101))
    found = loaded("".join(lines), tmp_path)
    store = found.settings.store
    assert (store.pull_count_max, store.pull_bytes_max) == (101, 102)
    assert (store.far_pull_count_max, store.far_pull_bytes_max) == (103, 104)
    assert not found.warnings


@pytest.mark.parametrize("name", TRANSFERRED)
@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", str(16 * 1024 * 1024)])
def test_a_pull_limit_of_nothing_or_more_than_a_frame_is_rejected(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"maxTransfer{name}"):
        loaded(f"maxTransfer{name}={value}\n", tmp_path)


def test_the_default_broker_name_is_the_host_name() -> None:
    assert BrokerSettings().name
    assert BrokerSettings(name="given").name == "given"


def test_role_and_id_must_fit(tmp_path: Path) -> None:
    assert not loaded("brokerRole=SYNC_MASTER\n", tmp_path).settings.is_slave
    for master in ("namesrvAddr=10.0.0.1:9876", "haMasterAddress=10.0.0.1:10912"):
        assert loaded(f"brokerRole=SLAVE\nbrokerId=2\n{master}\n", tmp_path).settings.is_slave
    for text, reason in (
        ("brokerRole=SLAVE\n", "needs a brokerId above 0"),
        ("brokerRole=SLAVE\nbrokerId=0\nhaMasterAddress=10.0.0.1:10912\n", "needs a brokerId above 0"),
        ("brokerRole=ASYNC_MASTER\nbrokerId=1\n", "set brokerRole = SLAVE"),
        ("brokerRole=SYNC_MASTER\nbrokerId=1\n", "set brokerRole = SLAVE"),
        ("brokerId=1\n", "set brokerRole = SLAVE"),
        ("brokerId=-1\n", "brokerId"),
        ("brokerRole=SLAVE\nbrokerId=-1\nhaMasterAddress=10.0.0.1:10912\n", "brokerId"),
        ("brokerRole=SLAVE\nbrokerId=1\n", "set namesrvAddr .* or haMasterAddress"),
        ("brokerRole=MASTER\n", "brokerRole.*SYNC_MASTER"),
    ):
        with pytest.raises(SettingsError, match=reason):
            loaded(text, tmp_path)


def test_the_replication_keys_of_apache_have_their_defaults_and_units(tmp_path: Path) -> None:
    defaults = loaded("listenPort=30911\n", tmp_path).settings
    assert (defaults.replication_port, defaults.replication.batch_bytes) == (30912, 32768)
    assert (defaults.replication.slave_timeout_s, defaults.replication.fall_behind_bytes_max) == (3, 256 * 1024 * 1024)
    assert (defaults.replication.heartbeat_interval_s, defaults.replication.housekeeping_interval_s) == (5, 20)
    assert (defaults.slave_read, defaults.replication.offset_check_in_slave, defaults.store.memory_ratio) == (
        False,
        False,
        0.4,
    )
    reading = loaded("slaveReadEnable=true\naccessMessageInMemoryMaxRatio=25\n", tmp_path).settings
    assert (reading.slave_read, reading.store.memory_ratio) == (True, 0.25)
    text = (
        "haSendHeartbeatInterval=1000\nhaHousekeepingInterval=4000\nhaTransferBatchSize=65536\nslaveTimeout=500\n"
        "haSlaveFallbehindMax=1048576\nhaMasterAddress=10.0.0.1:10912\noffsetCheckInSlave=true\nbrokerIP2=10.1.0.1\n"
        "haListenPort=10912\nlistenPort=30911\nbrokerIP1=10.0.0.2\n"
    )
    settings = loaded(text, tmp_path).settings
    changed = settings.replication
    assert (changed.heartbeat_interval_s, changed.housekeeping_interval_s, changed.slave_timeout_s) == (1, 4, 0.5)
    assert (changed.batch_bytes, changed.fall_behind_bytes_max) == (65536, 1048576)
    assert (changed.master_address, changed.offset_check_in_slave) == ("10.0.0.1:10912", True)
    assert str(settings.advertised_replication) == "10.1.0.1:30912", "haListenPort is ignored, as by Apache"


def test_invalid_settings_are_rejected_with_a_hint() -> None:
    assert "brokerId = 0 for a master" in settings_error(broker_id=1)
    assert "0 for a free pair" in settings_error(port=2)
    assert "127.0.0.1:9876" in settings_error(namesrv_addr="localhost")
    assert "semicolons" in settings_error(namesrv_addr="10.0.0.1:9876,10.0.0.2:9876")
    assert "has no host or no port" in settings_error(namesrv_addr=":9876")
    assert "printable" in settings_error(name="two words")


def test_a_nameserver_named_twice_counts_once() -> None:
    assert BrokerSettings(namesrv_addr="a:1; b:2 ;a:1;").nameservers == ("a:1", "b:2")


def test_exported_settings_can_be_loaded_and_contain_no_secret(tmp_path: Path) -> None:
    lines = [f"{key}={value}" for key, value in to_properties(BrokerSettings(name="b")).items()]
    assert loaded("\n".join(lines), tmp_path).settings == BrokerSettings(name="b")
    assert not any(line.startswith("tls.server.keyPassword") for line in lines)
