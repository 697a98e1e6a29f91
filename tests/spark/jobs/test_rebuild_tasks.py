"""The hashes of many keys at once are those that the store works out one by one."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ariane.spark.jobs.rebuild_tasks import IndexWork, Place, index_works, java_hashes
from ariane.wire.hashes import java_hash

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.lists(_TEXTS))
def test_hashes_are_javas(texts: list[str]) -> None:
    hashed = java_hashes(pa.array(texts, pa.string()))
    assert hashed.hashes.tolist() == [java_hash(text) % 2**32 for text in texts]
    assert hashed.lengths.tolist() == [len(text.encode("utf-16-le")) // 2 for text in texts]


def test_more_text_than_one_pass_takes_is_hashed_in_parts() -> None:
    texts = [f"{number}" * 4000 for number in range(200)]
    values = pa.array(["before", *texts], pa.string())[1:]
    assert java_hashes(values).hashes.tolist() == [java_hash(text) % 2**32 for text in texts]


@given(st.lists(st.integers(0, 20)), st.integers(2, 8))
def test_every_index_row_has_one_place_and_only_the_last_file_is_not_full(counts: list[int], entries: int) -> None:
    works: list[IndexWork] = list(index_works(counts, 10, entries, (str(n) for n in range(1000))))
    rows = [(place.stretch, place.at + n) for work in works for place in work.places for n in range(place.count)]
    assert rows == [(stretch, at) for stretch, count in enumerate(counts) for at in range(count)]
    assert all(sum(place.count for place in work.places) == entries - 1 for work in works[:-1])
    for before, work in pairwise(works):
        last = before.places[-1]
        assert work.before == Place(last.stretch, last.at + last.count - 1, 1)
