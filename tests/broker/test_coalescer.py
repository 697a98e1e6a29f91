"""Sends that are staged together: each is answered to its sender."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from ariane.model.system_topics import SCHEDULE, TIMER
from ariane.store.settings import FlushDiskType
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.record.read import decode
from tests.broker.in_process_broker import TOPIC, a_send, in_process_broker
from tests.nameserver.servers import caller

CLIENTS = 8
ROUNDS = 10


async def test_sends_of_many_connections_in_one_iteration_are_answered_each_to_its_own(tmp_path: Path) -> None:
    """While they wait for a sync, answers of different connections must not be put together."""
    async with in_process_broker(tmp_path, flush=FlushDiskType.SYNC) as broker, AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(caller()) for _ in range(CLIENTS)]
        for number in range(ROUNDS):
            bodies = [f"round {number} client {client}".encode() for client in range(CLIENTS)]
            sends = [
                caller.call(broker.address, a_send(body=body), 10) for caller, body in zip(callers, bodies, strict=True)
            ]
            responses = await asyncio.gather(*sends)
            stored = [
                broker.store.lookup.record_at(decode_offset_message_id(response.msg_id).physical_offset)
                for response in responses
            ]
            assert [decode(bytes(record)).body for record in stored if record is not None] == bodies


async def test_delayed_messages_are_staged_with_the_others_and_the_log_keeps_the_order_of_arrival(
    tmp_path: Path,
) -> None:
    properties: list[dict[str, str]] = [{}, {"DELAY": "3"}, {}, {"TIMER_DELAY_SEC": "60"}, {"DELAY": "3"}, {}]
    async with in_process_broker(tmp_path) as broker, caller() as one:
        sends = [one.call(broker.address, a_send(properties=found), 10) for found in properties]
        responses = await asyncio.gather(*sends)
        places = [decode_offset_message_id(response.msg_id).physical_offset for response in responses]
        assert places == sorted(set(places))
        records = [broker.store.lookup.record_at(place) for place in places]
        topics = [decode(bytes(record)).topic for record in records if record is not None]
        assert topics == [TOPIC, SCHEDULE, TOPIC, TIMER, SCHEDULE, TOPIC]
