"""Recovery of a log in which records of different kinds alternate: all are found, each is read a few times at most."""

from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest

from ariane.model.system_topics import SCHEDULE
from ariane.store.commit_log import recovery
from ariane.store.settings import MiB
from ariane.wire.record.numpy_fields import heads_at
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import bodies, draft, opened, put

RECORDS = 6000


@pytest.mark.parametrize("run", [1, 3, 70, 500])
def test_delayed_messages_among_others_do_not_make_it_slow(run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    sizes: dict[str, Any] = {"segment_bytes": 8 * MiB, "queue_segment_bytes": 20 * RECORDS}
    store = opened(disk, **sizes)
    topics = list(islice(cycle([*["orders"] * run, SCHEDULE]), RECORDS))
    put(store, *(draft(b"%d" % number, topic) for number, topic in enumerate(topics)))
    decoded: list[int] = []

    def counting(view: memoryview, starts: Any) -> Any:
        decoded.append(len(np.atleast_1d(starts)))
        return heads_at(view, starts)

    monkeypatch.setattr(recovery, "heads_at", counting)
    again = opened(disk.crash_process(), **sizes)
    for topic in ("orders", SCHEDULE):
        assert bodies(again, topic, 0) == [b"%d" % number for number, name in enumerate(topics) if name == topic]
    assert sum(decoded) < 4 * RECORDS
