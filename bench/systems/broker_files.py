"""Configuration files for Ariane and Apache RocketMQ: both start with the same settings and topics."""

import json
from pathlib import Path

from bench.load.names import topic_name
from bench.systems.system import Flush, Setup

CLUSTER = "BenchCluster"
_FLUSH = {
    Flush.SYNC: {"flushDiskType": "SYNC_FLUSH"},
    Flush.ASYNC: {"flushDiskType": "ASYNC_FLUSH"},
    Flush.DEFAULT: {},
}


def write_settings(home: Path, name: str, nameserver: str, port: int, setup: Setup) -> Path:
    """broker.conf: names, addresses and flush mode. Everything else is the default of each system."""
    store = home / "store"
    lines = {
        "brokerClusterName": CLUSTER,
        "brokerName": name,
        "brokerIP1": "127.0.0.1",
        "listenPort": str(port),
        "namesrvAddr": nameserver,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        **_FLUSH[setup.flush],
    }
    write_topics(store, setup)
    path = home / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path


def write_topics(store: Path, setup: Setup) -> None:
    """Topics in the file that a broker reads at start: creating thousands by requests would take minutes."""
    table = {topic_name(number): _topic(topic_name(number), setup.queues) for number in range(setup.topics)}
    path = store / "config" / "topics.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table}))


def _topic(name: str, queues: int) -> dict[str, object]:
    return {
        "order": False,
        "perm": 6,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }
