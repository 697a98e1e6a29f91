"""The end of a commit log, read from its files, and a slave's lag."""

from pathlib import Path

import pytest

from ariane.clock import Clock
from ariane.store.message_store import MessageStore
from bench.log_ends import LagSample, LogEnd, lag_of
from tests.store.stores import BOOT, HOST, draft, small


def test_the_end_of_a_log_is_found_in_each_of_its_files(tmp_path: Path) -> None:
    end = LogEnd(tmp_path / "commitlog")
    assert end.read() == 0
    store = MessageStore.open(small(tmp_path), Clock(), HOST, boot=BOOT)
    log = store.components.commit_log
    files = set()
    for number in range(60):
        store.append([draft(b"x" * (200 + number))])
        files.add(log.max_offset // 8192)
        assert end.read() == log.max_offset
    assert len(files) > 1
    store.close()


def test_a_log_may_begin_with_a_later_file(tmp_path: Path) -> None:
    record = (100).to_bytes(4, "big") + (0xDAA320A7).to_bytes(4, "big") + bytes(92)
    (tmp_path / f"{4096:020d}").write_bytes(record * 3 + bytes(100))
    assert LogEnd(tmp_path).read() == 4096 + 300


def test_a_lag_is_the_age_of_the_first_byte_that_the_slave_does_not_have() -> None:
    samples = [
        LagSample(0.000, 100, 100),
        LagSample(0.010, 200, 100),
        LagSample(0.020, 300, 100),
        LagSample(0.030, 300, 300),
    ]
    lag = lag_of(samples)
    assert lag.p50_ms == pytest.approx(15)  # 10 and 20 ms, counted from the last time that the master had no more
    assert lag.p99_bytes == pytest.approx(199)


def test_a_log_that_does_not_grow_has_no_lag() -> None:
    with pytest.raises(ValueError, match="did not grow"):
        lag_of([LagSample(0.0, 100, 100), LagSample(0.1, 100, 100)])
