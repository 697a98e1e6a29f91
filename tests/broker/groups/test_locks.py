"""Queue locks of ordered consumption: the table with controlled time, and the two requests over a socket."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ariane.broker.groups.locks import LOCK_S, QueueLocks
from ariane.model.group import GroupConfig
from ariane.model.route import MessageQueue
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.clients import LockQueues, UnlockQueues
from ariane.wire.requests.clients import QueueLocks as LockRequest
from tests.broker.consumer_group_fixtures import SETTINGS, connected_client, group_broker, running

QUEUES = [MessageQueue(topic="orders", broker_name="broker-a", queue_id=number) for number in range(3)]


def test_a_queue_has_one_owner_until_it_is_not_renewed_for_a_minute() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "one", QUEUES[:2], now=0) == QUEUES[:2]
    assert locks.lock("g", "two", QUEUES, now=1) == QUEUES[2:]
    assert locks.lock("g", "one", QUEUES[:1], now=50) == QUEUES[:1]
    assert locks.lock("g", "two", QUEUES, now=61) == QUEUES[1:]
    assert locks.lock("g", "two", QUEUES, now=50 + LOCK_S) == QUEUES[1:]
    assert locks.lock("g", "two", QUEUES, now=50 + LOCK_S + 0.1) == QUEUES


def test_groups_do_not_see_each_other() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "one", QUEUES, now=0) == locks.lock("h", "two", QUEUES, now=0) == QUEUES


def test_only_the_owner_unlocks() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", QUEUES, now=0)
    locks.unlock("g", "two", QUEUES)
    locks.unlock("h", "one", QUEUES)
    assert locks.owner("g", QUEUES[0], now=0) == "one"
    locks.unlock("g", "one", QUEUES)
    assert locks.owner("g", QUEUES[0], now=0) is None
    assert len(locks) == 0


def test_expired_locks_take_no_memory() -> None:
    locks = QueueLocks()
    for number in range(100):
        locks.lock(f"g{number}", "c", QUEUES, now=0)
    locks.lock("g", "c", QUEUES[:1], now=LOCK_S + 1)
    assert len(locks) == 1


class OneOwner(RuleBasedStateMachine):
    """In any sequence of events, a granted queue has no other owner until its lock is released or expires."""

    def __init__(self) -> None:
        super().__init__()
        self.locks, self.now = QueueLocks(), 0.0
        self.granted: dict[MessageQueue, tuple[str, float]] = {}

    @rule(client=st.sampled_from("abc"), queues=st.sets(st.sampled_from(QUEUES)))
    def lock(self, client: str, queues: set[MessageQueue]) -> None:
        for queue in self.locks.lock("g", client, queues, self.now):
            owner, since = self.granted.get(queue, (client, self.now))
            assert owner == client or self.now - since > LOCK_S
            self.granted[queue] = (client, self.now)

    @rule(client=st.sampled_from("abc"), queue=st.sampled_from(QUEUES))
    def unlock(self, client: str, queue: MessageQueue) -> None:
        self.locks.unlock("g", client, [queue])
        if self.granted.get(queue, ("", 0))[0] == client:
            del self.granted[queue]

    @rule(seconds=st.sampled_from([1, 30, 60, 61, 200]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def owners_are_those_of_the_model(self) -> None:
        for queue in QUEUES:
            owner, since = self.granted.get(queue, (None, 0.0))
            assert self.locks.owner("g", queue, self.now) == (owner if self.now - since <= LOCK_S else None)


TestOneOwner = OneOwner.TestCase
TestOneOwner.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


async def test_clients_lock_and_unlock_existing_queues() -> None:
    broker = group_broker()
    broker.topic("orders", 2)
    strange = [MessageQueue(topic="unknown", broker_name="broker-a", queue_id=0), QUEUES[2]]
    async with running(broker) as server, connected_client(server) as one, connected_client(server) as two:
        request = LockRequest(consumer_group="g", client_id="one", mq_set=[*QUEUES[:2], *strange])
        assert (await one.call(LockQueues(body=request))).body.locked == QUEUES[:2]
        theirs = LockRequest(consumer_group="g", client_id="two", mq_set=QUEUES[:2])
        assert (await two.call(LockQueues(body=theirs))).body.locked == []
        await one.call(UnlockQueues(body=request))
        assert (await two.call(LockQueues(body=theirs))).body.locked == QUEUES[:2]
        await broker.clock.advance(LOCK_S + 1)
        assert (await one.call(LockQueues(body=request))).body.locked == QUEUES[:2]
        assert (await one.error_response(LockQueues()))[0] == ResponseCode.SYSTEM_ERROR


async def test_only_queues_of_this_broker_are_locked_for_groups_that_exist() -> None:
    """Each lock takes memory and a line of the journal: what is locked must not be invented."""
    broker = group_broker(replace(SETTINGS, auto_create_groups=False))
    broker.topic("orders", 3)
    broker.groups.put(GroupConfig(group_name="g"))
    elsewhere = [MessageQueue(topic="orders", broker_name=f"invented-{n}", queue_id=0) for n in range(100)]
    async with running(broker) as server, connected_client(server) as client:
        asked = LockRequest(consumer_group="g", client_id="one", mq_set=[*elsewhere, *QUEUES])
        assert (await client.call(LockQueues(body=asked))).body.locked == QUEUES
        invented = LockRequest(consumer_group="invented", client_id="one", mq_set=QUEUES)
        code, _ = await client.error_response(LockQueues(body=invented))
        assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        long = LockRequest(consumer_group="g", client_id="c" * 20_000, mq_set=QUEUES)
        _, remark = await client.error_response(LockQueues(body=long))
        assert "20000 characters" in remark
    assert len(broker.locks) == len(QUEUES)
