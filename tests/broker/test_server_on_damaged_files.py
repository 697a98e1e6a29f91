"""A broker on a store with one damaged file beside its log, tables and timer files included: it serves what it had.

`ARIANE_DAMAGES` says how often: a third of it, since a start takes longer here than in tests/store/test_file_damage.py.
"""

import os
import random
import shutil
from pathlib import Path
from typing import NamedTuple

from ariane.model.topic import TopicConfig
from tests.broker.brokers import RunningBroker, running_broker
from tests.store.stores import bodies, draft, put

DAMAGES = int(os.environ.get("ARIANE_DAMAGES", "60")) // 3
GROUPS = ("billing", "shipping")


def send(broker: RunningBroker, count: int) -> list[tuple[str, int, int]]:
    drafts = [draft(b"%d" % n, topic=f"t{n % 3}", queue_id=n % 2, key=f"k{n}") for n in range(count)]
    results = put(broker.parts.store.store, *drafts)
    return [(each.topic, each.queue_id, result.queue_offset) for each, result in zip(drafts, results, strict=True)]


async def made(root: Path) -> None:
    """Two runs, so that every file and its copy have been written."""
    async with running_broker(root) as broker:
        for number in range(3):
            broker.parts.topics.ensure(f"t{number}", 2)
        send(broker, 60)
        commit(broker, 5)
    async with running_broker(root) as broker:
        send(broker, 30)
        commit(broker, 12)


def commit(broker: RunningBroker, offset: int) -> None:
    for group in GROUPS:
        broker.parts.offsets.commit(group, "t0", 0, offset)


class State(NamedTuple):
    topics: dict[str, TopicConfig]
    offsets: dict[str, dict[int, int]]
    queues: dict[tuple[str, int], tuple[int, list[bytes]]]
    """By topic and queue: its end and its messages."""


def state(broker: RunningBroker) -> State:
    store = broker.parts.store.store
    queues = store.components.queues
    return State(
        {topic: config for topic, config in broker.parts.topics.all().items() if topic.startswith("t")},
        {group: dict(broker.parts.offsets.of(group, "t0")) for group in GROUPS},
        {
            (queue.topic, queue.queue_id): (queue.max_offset, bodies(store, queue.topic, queue.queue_id))
            for queue in queues
        },
    )


def damage(root: Path, rng: random.Random) -> Path:
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.parent.name != "commitlog")
    files = [path for path in files if path.name not in ("lock", "reserve")]
    directory = rng.choice(sorted({path.parent for path in files}))
    path = rng.choice([path for path in files if path.parent == directory])
    data = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "flip", "truncate", "remove"])
    if kind == "flip" and data:
        written = [at for at, byte in enumerate(data) if byte] or [0]
        data[rng.choice(written)] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    elif kind == "remove":
        path.unlink()
    else:
        path.write_bytes(data[: rng.randrange(len(data) + 1)])
    return path


async def test_a_broker_with_a_damaged_file_serves_what_it_had(tmp_path: Path) -> None:
    await made(tmp_path / "made")
    async with running_broker(tmp_path / "made") as broker:
        expected = state(broker)
    for seed in range(DAMAGES):
        root = tmp_path / f"{seed}"
        shutil.copytree(tmp_path / "made", root)
        path = damage(root / "store", random.Random(seed))
        async with running_broker(root) as broker:
            assert state(broker) == expected, f"seed {seed}: {path}"
            for topic, queue_id, offset in send(broker, 6):
                assert offset == expected.queues[topic, queue_id][0], f"seed {seed}: {path}"
        shutil.rmtree(root)
