"""Requests about consumer offsets, over a real socket."""

from dataclasses import replace

import pytest

from ariane.broker.groups.offsets import NO_LIMIT, correction_offsets
from ariane.model.ids import QueueOffset
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.offsets import (
    CloneGroupOffset,
    GetAllConsumerOffsets,
    GetConsumerOffset,
    GetCorrectionOffsets,
    UpdateConsumerOffset,
)
from tests.broker.consumer_group_fixtures import (
    SETTINGS,
    GroupBroker,
    connected_client,
    consumer,
    group_broker,
    heartbeat,
    running,
    subscription,
)
from tests.store.stores import draft, put


def with_messages(count: int = 10, **settings: object) -> GroupBroker:
    broker = group_broker(replace(SETTINGS, **settings))  # type: ignore[arg-type]
    broker.topic("orders", 2)
    put(broker.store, *(draft(b"x", "orders", 0) for _ in range(count)))
    return broker


def commit(group: str, topic: str, queue_id: int, offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(group, topic, queue_id, QueueOffset(offset))


async def test_a_committed_offset_is_found_again() -> None:
    broker = with_messages()
    async with running(broker) as server, connected_client(server) as client:
        response = await client.send_request(commit("g", "orders", 0, 7))
        assert (response.code, response.ext) == (0, {})
        assert (await client.call(GetConsumerOffset("g", "orders", 0))).offset == 7
        await client.call(commit("g", "orders", 0, 3))
        assert (await client.call(GetConsumerOffset("g", "orders", 0))).offset == 3
        assert (await client.call(GetAllConsumerOffsets())).body.offset_table == {"orders@g": {0: 3}}


async def test_a_client_that_commits_minus_one_for_idle_queues_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(with_messages()) as server, connected_client(server) as client:
        for number in range(200):
            response = await client.send_request(commit("g", "orders", number % 2, -1))
            assert response.code == ResponseCode.INVALID_PARAMETER
        (record,) = [record for record in caplog.records if record.message == "offset rejected"]
        assert (vars(record)["group"], vars(record)["offset"]) == ("g", -1)
        assert (await client.call(GetAllConsumerOffsets())).body.offset_table == {}


async def test_a_new_group_starts_at_0_while_the_queue_still_does() -> None:
    async with running(with_messages()) as server, connected_client(server) as client:
        for queue_id in (0, 1):
            assert (await client.call(GetConsumerOffset("new", "orders", queue_id))).offset == 0


async def test_5x_clients_can_disable_the_start_at_0() -> None:
    async with running(with_messages()) as server, connected_client(server) as client:
        request = GetConsumerOffset("new", "orders", 0, set_zero_if_not_found=False)
        code, remark = await client.error_response(request)
        assert (code, "group new has no offset in queue 0" in remark) == (ResponseCode.QUERY_NOT_FOUND, True)
        await client.call(commit("new", "orders", 0, 0))
        assert (await client.call(request)).offset == 0


async def test_a_new_group_does_not_start_at_0_after_retention_deleted_the_first_messages() -> None:
    broker = with_messages()
    queue = broker.store.components.queues.get("orders", 0)
    assert queue is not None
    queue.min_offset = 4
    async with running(broker) as server, connected_client(server) as client:
        assert (await client.error_response(GetConsumerOffset("new", "orders", 0)))[0] == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("topic", "queue_id", "offset", "code"),
    [
        ("orders", 0, -1, ResponseCode.INVALID_PARAMETER),
        ("orders", 0, 11, ResponseCode.INVALID_PARAMETER),
        ("orders", 0, 2**63 - 1, ResponseCode.INVALID_PARAMETER),
        ("orders", 1, 1, ResponseCode.INVALID_PARAMETER),
        ("orders", 2, 0, ResponseCode.INVALID_PARAMETER),
        ("orders", -1, 0, ResponseCode.INVALID_PARAMETER),
        ("unknown", 0, 0, ResponseCode.TOPIC_NOT_EXIST),
    ],
)
async def test_an_invalid_offset_leaves_the_old_one(topic: str, queue_id: int, offset: int, code: int) -> None:
    broker = with_messages()
    broker.offsets.commit("g", "orders", 0, 5)
    async with running(broker) as server, connected_client(server) as client:
        assert (await client.error_response(commit("g", topic, queue_id, offset)))[0] == code
    assert broker.offsets.table() == {"orders@g": {0: 5}}


async def test_the_end_of_a_queue_is_an_offset() -> None:
    broker = with_messages()
    async with running(broker) as server, connected_client(server) as client:
        await client.call(commit("g", "orders", 0, 10))
    assert broker.offsets.get("g", "orders", 0) == 10


async def test_only_known_groups_commit_when_groups_are_not_created_by_use() -> None:
    broker = with_messages(auto_create_groups=False)
    async with running(broker) as server, connected_client(server) as client:
        code, _ = await client.error_response(commit("g", "orders", 0, 1))
    assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert broker.offsets.table() == {}


async def test_a_hidden_queue_can_still_be_consumed_to_its_end() -> None:
    broker = with_messages()
    put(broker.store, *(draft(b"x", "orders", 1) for _ in range(3)))
    broker.topic("orders", 1)
    async with running(broker) as server, connected_client(server) as client:
        await client.call(commit("g", "orders", 1, 3))
    assert broker.offsets.get("g", "orders", 1) == 3


# --- administration


async def test_offsets_are_cloned_for_one_topic_or_for_all() -> None:
    broker = with_messages()
    broker.topic("bills")
    for topic, offset in [("orders", 3), ("bills", 4), ("deleted", 5)]:
        broker.offsets.commit("g", topic, 0, offset)
    async with running(broker) as server, connected_client(server) as admin:
        await admin.call(CloneGroupOffset(src_group="g", dest_group="one", topic="orders"))
        await admin.call(CloneGroupOffset(src_group="g", dest_group="all"))
    table = broker.offsets.table()
    assert {key: value for key, value in table.items() if not key.endswith("@g")} == {
        "orders@one": {0: 3},
        "orders@all": {0: 3},
        "bills@all": {0: 4},
    }


async def test_unsubscribed_topics_of_a_connected_group_are_cloned_only_on_request() -> None:
    broker = with_messages()
    broker.offsets.commit("g", "orders", 0, 3)
    async with running(broker) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("g", subscription("bills"))))
        await client.call(CloneGroupOffset(src_group="g", dest_group="h", topic="orders"))
        assert broker.offsets.get("h", "orders", 0) == -1
        await client.call(CloneGroupOffset(src_group="g", dest_group="h", topic="orders", offline=True))
        assert broker.offsets.get("h", "orders", 0) == 3


async def test_correction_offsets_are_those_of_the_slowest_group() -> None:
    broker = with_messages()
    for group, offset in [("slow", 3), ("fast", 8), ("ignored", 1), ("mine", 5)]:
        broker.offsets.commit(group, "orders", 0, offset)
    async with running(broker) as server, connected_client(server) as admin:
        request = GetCorrectionOffsets(compare_group="mine", topic="orders", filter_groups="ignored,mine")
        assert (await admin.call(request)).body.correction_offsets == {0: 3}
    assert broker.offsets.get("ignored", "orders", 0) == 1


def test_there_is_no_limit_where_all_other_groups_are_ahead() -> None:
    assert correction_offsets([{0: 9}, {0: 7, 1: 2}], {0: 5}, {}) == {0: NO_LIMIT, 1: 2}
    assert correction_offsets([{0: 3}, {0: 7}], {}, {0: 5}) == {0: 7}
