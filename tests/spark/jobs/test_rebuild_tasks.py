"""The tasks of the Spark job `rebuild`: index hashes of Arrow columns, and which rows go into which index file."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ariane.spark.jobs.rebuild_tasks import IndexFileTask, ScratchRange, arrow_key_hashes, plan_index_files
from ariane.store.index.entries import key_hash, topic_hash

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def hashes(topic: str, keys: pa.Array) -> list[int]:
    return [int(value) for value in arrow_key_hashes(np.full(len(keys), topic_hash(topic), np.uint32), keys)]


@given(st.text(max_size=10), st.lists(_TEXTS))
def test_hashes_of_a_column_are_those_of_each_key_alone(topic: str, keys: list[str]) -> None:
    assert hashes(topic, pa.array(keys, pa.string())) == [key_hash(topic, key) for key in keys]


def test_a_slice_with_more_text_than_one_pass_takes_is_hashed_in_parts() -> None:
    keys = [f"{number}" * 4000 for number in range(200)]
    assert hashes("orders", pa.array(["before", *keys], pa.string())[1:]) == [key_hash("orders", key) for key in keys]


@given(st.lists(st.integers(0, 20)), st.integers(2, 8))
def test_every_index_row_is_in_one_file_and_only_the_last_file_is_not_full(counts: list[int], entries: int) -> None:
    tasks: list[IndexFileTask] = list(plan_index_files(counts, 10, entries, (str(n) for n in range(1000))))
    rows = [(part.span, part.at + n) for task in tasks for part in task.ranges for n in range(part.count)]
    assert rows == [(span, at) for span, count in enumerate(counts) for at in range(count)]
    assert all(sum(part.count for part in task.ranges) == entries - 1 for task in tasks[:-1])
    for before, task in pairwise(tasks):
        last = before.ranges[-1]
        assert task.before == ScratchRange(last.span, last.at + last.count - 1, 1)
