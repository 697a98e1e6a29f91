"""The oldest message that nobody has seen: its file outlives a disk that is nearly full."""

from msgspec.structs import replace

from ariane.broker.components import oldest_undelivered_offset
from ariane.broker.json_table import JsonTable
from ariane.broker.schedule.delay_levels import DelayedDelivery
from ariane.model.system_topics import TRANS_HALF
from ariane.store.blocking_io import run_sync
from ariane.store.service import StoreService
from ariane.wire.requests.send import Decision
from tests.broker.transaction_fixtures import TransactionBroker, half_send, peer, transaction_broker


def delayed_of(broker: TransactionBroker) -> DelayedDelivery:
    writer = broker.transactions._writer
    service: StoreService = writer._service
    return DelayedDelivery(
        service, writer, JsonTable(broker.disk, broker.store.components.layout.config / "d.json"), broker.clock
    )


async def test_nothing_waits_in_a_broker_that_delivered_all() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        delayed = delayed_of(broker)
        assert run_sync(oldest_undelivered_offset(broker.store, delayed, broker.transactions)) is None
        await producer.end(await producer.send_half(), Decision.COMMIT)
        assert run_sync(oldest_undelivered_offset(broker.store, delayed, broker.transactions)) is None


async def test_a_half_message_waits_until_its_outcome_is_reported() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        first, second = await producer.send_half(b"1"), await producer.send_half(b"2")
        places = [message.physical_offset for message in broker.messages(TRANS_HALF)]
        delayed = delayed_of(broker)
        assert run_sync(oldest_undelivered_offset(broker.store, delayed, broker.transactions)) == places[0]
        await producer.end(first, Decision.ROLLBACK)
        assert run_sync(oldest_undelivered_offset(broker.store, delayed, broker.transactions)) == places[1]
        await producer.end(second, Decision.COMMIT)
        assert run_sync(oldest_undelivered_offset(broker.store, delayed, broker.transactions)) is None


async def test_a_delayed_message_waits_until_it_is_delivered() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        delayed = delayed_of(broker)
        sent = await producer.call(replace(half_send(b"later"), sys_flag=0, properties="DELAY\x012\x02"))
        assert run_sync(oldest_undelivered_offset(broker.store, delayed, broker.transactions)) == int(
            sent.msg_id[-16:], 16
        )
        await broker.clock.advance(6)
        await delayed.deliver_due()
        assert broker.bodies() == [b"later"]
        assert run_sync(oldest_undelivered_offset(broker.store, delayed, broker.transactions)) is None
