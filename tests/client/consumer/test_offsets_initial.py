"""The start offset of a queue: the stored offset, or what `start=` says."""

from datetime import UTC, datetime

import pytest

from ariane.client.consumer.offsets import Start, find_start_offset
from ariane.errors import ClientError
from ariane.model.group import ConsumeFromWhere
from ariane.model.route import MessageQueue

QUEUE = MessageQueue(topic="orders", broker_name="a", queue_id=0)
RETRIES = MessageQueue(topic="%RETRY%group", broker_name="a", queue_id=0)
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class Ends:
    """A queue from 100 to 200, with MOMENT at 150."""

    async def min_offset(self, queue: MessageQueue) -> int:
        return 100

    async def max_offset(self, queue: MessageQueue) -> int:
        return 200

    async def search_offset(self, queue: MessageQueue, moment: datetime | int) -> int:
        assert moment == MOMENT.timestamp() * 1000
        return 150


async def test_a_stored_offset_always_wins() -> None:
    start_offset = await find_start_offset(QUEUE, 123, Start.of("earliest"), Ends())
    assert start_offset == (123, "the group's stored offset")


async def test_without_a_stored_offset_start_decides_and_is_the_reason() -> None:
    assert await find_start_offset(QUEUE, None, Start.of("earliest"), Ends()) == (
        100,
        "no stored offset; start=earliest",
    )
    assert await find_start_offset(QUEUE, None, Start.of("latest"), Ends()) == (200, "no stored offset; start=latest")
    at_moment = await find_start_offset(QUEUE, None, Start.of(MOMENT), Ends())
    assert at_moment == (150, "no stored offset; start=2026-01-01T00:00:00+00:00")


async def test_retries_are_never_skipped() -> None:
    assert (await find_start_offset(RETRIES, None, Start.of("latest"), Ends())).offset == 100


async def test_the_reason_for_zero_names_both_possibilities() -> None:
    start_offset = await find_start_offset(QUEUE, 0, Start.of("latest"), Ends())
    assert start_offset.offset == 0
    assert "returned 0" in start_offset.reason


def test_a_start_maps_to_consume_from_where() -> None:
    assert Start.of("earliest").where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert Start.of("latest").where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert Start.of(1_700_000_000_000) == Start(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 1_700_000_000_000)
    assert Start.of(Start.of(MOMENT)) == Start.of(MOMENT)


def test_an_unknown_start_lists_the_choices() -> None:
    with pytest.raises(ClientError, match="'earliest', 'latest'"):
        Start.of("yesterday")  # type: ignore[arg-type]
