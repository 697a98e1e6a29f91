"""The transactions of stores that Apache RocketMQ 4.9.8 wrote: 30 each time, a third of them ended by check-back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.json_table import JsonTable
from ariane.broker.transactions.half_messages import HalfMessage, HalfRecord, ended_offsets, op_message, real
from ariane.broker.transactions.pending import PROGRESS_GROUP, half_queue, load_pending, op_queue
from ariane.model.system_topics import TRANS_HALF, TRANS_OP
from ariane.store.message_store import MessageStore
from ariane.wire.host import encode_host
from ariane.wire.properties import decode_properties
from ariane.wire.record.read import decode
from tests.store.test_message_store_golden import extracted, opened


@pytest.fixture(params=["clean", "killed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    store = opened(extracted(request.param, tmp_path))
    yield store
    store.close()


def saved_offsets(store: MessageStore) -> ConsumerOffsets:
    return ConsumerOffsets(JsonTable(store.components.disk, store.components.layout.config / "consumerOffset.json"))


def half_messages(store: MessageStore) -> list[HalfMessage]:
    return [HalfMessage.of(record) for _, record in half_queue(store).walk(0)]


def test_we_go_on_where_apache_stopped(store: MessageStore) -> None:
    offsets = saved_offsets(store)
    waiting = load_pending(store, offsets)
    assert waiting.first_open == half_queue(store).end == offsets.get(PROGRESS_GROUP, TRANS_HALF, 0)
    assert waiting.first_op == op_queue(store).end == offsets.get(PROGRESS_GROUP, TRANS_OP, 0)


def test_an_older_progress_finds_open_what_no_op_message_ended(store: MessageStore) -> None:
    offsets = ConsumerOffsets(None)
    waiting = load_pending(store, offsets)
    ended = {offset for view, record in op_queue(store).walk(0) for offset in ended_offsets(view, record)}
    end = half_queue(store).end
    assert [offset for offset in range(end) if waiting.is_open(offset)] == sorted(set(range(end)) - ended)


def test_our_op_messages_are_apaches(store: MessageStore) -> None:
    for view, record in op_queue(store).walk(0):
        theirs = decode(record)
        (offset,) = ended_offsets(view, record)
        ours = op_message(offset, theirs.born_timestamp_ms, encode_host(theirs.store_host))
        assert (ours.topic, ours.queue_id, ours.body) == (theirs.topic, theirs.queue_id, theirs.body)
        assert decode_properties(ours.properties).items() <= theirs.properties.items()
        assert ours.born_host == encode_host(theirs.born_host)


def test_our_committed_messages_are_apaches(store: MessageStore) -> None:
    by_half = {view.physical_offset: HalfRecord.of(record) for view, record in half_queue(store).walk(0)}
    theirs = [
        decode(record) for queue_id in range(4) for record in store.reader.read("GoldenTx", queue_id, 0, 32).slices
    ]
    assert theirs
    for message in theirs:
        ours = real(by_half[message.prepared_transaction_offset])
        assert (ours.topic, ours.queue_id, ours.body) == (message.topic, message.queue_id, message.body)
        assert decode_properties(ours.properties) == message.properties
        assert (ours.sys_flag, ours.flag, ours.born_timestamp_ms) == (
            message.sys_flag,
            message.flag,
            message.born_timestamp_ms,
        )
        assert ours.prepared_transaction_offset == message.prepared_transaction_offset


def test_copies_that_apache_made_count_as_asked_once(store: MessageStore) -> None:
    copies = [message for message in half_messages(store) if message.check_times]
    assert copies
    assert {message.check_times for message in copies} == {1}
    assert all(message.is_copy for message in copies)
