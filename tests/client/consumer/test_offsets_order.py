"""Saving offsets at a broker that handles requests concurrently, as Apache's do: no save may undo another."""

import asyncio
from dataclasses import dataclass, field

from ariane.client.consumer.message import Received
from ariane.client.consumer.offsets import RemoteBrokerOffsetStore
from ariane.client.consumer.push import PushConsumer
from ariane.client.core.instance import Instance
from ariane.client.settings import ClientSettings
from ariane.model.route import MessageQueue
from ariane.transport.connection import Connection
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import response_command
from ariane.wire.frame import Command, encode_frame
from ariane.wire.requests.offsets import UpdateOffsetResponse
from ariane.wire.requests.pull import PullMessage, PullSysFlag
from tests.client.cluster_fixture import MessageCollector, until
from tests.client.consumer.scripted_queue import GROUP, TOPIC, ScriptedQueue, found, nothing, scripted_queue
from tests.nameserver.servers import caller, nameserver, registration
from tests.transport.peers import serving


async def test_a_pull_commits_nothing_while_messages_are_unfinished() -> None:
    queue, collector, may_finish = ScriptedQueue(), MessageCollector(), asyncio.Event()

    async def handle(message: Received) -> None:
        collector.put(message)
        if message.body == b"slow":
            await may_finish.wait()

    # After "quick" is finished and before "slow" is, two pulls go out; another one when both are finished.
    queue.pulls.extend([found(b"quick", b"slow"), nothing(at=2), nothing(at=2)])
    async with scripted_queue(queue) as names:
        consumer = PushConsumer(names, group=GROUP, start="earliest", handler=handle)
        consumer.subscribe(TOPIC)
        async with consumer:
            await collector.until_count(2)
            await until(lambda: not queue.pulls)
            may_finish.set()
            queue.pulls.append(nothing(at=2))
            await until(lambda: any(_commits(pull) for pull in _pulls(queue)))
    assert {pull.commit_offset for pull in _pulls(queue) if _commits(pull)} == {2}


@dataclass
class CountingBroker:
    """A broker that counts concurrent saves."""

    now: int = 0
    most: int = 0
    saved: dict[int, int] = field(default_factory=dict)

    async def receive(self, _connection: Connection, command: Command) -> bytes:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)  # long enough for another to come in beside it
        self.now -= 1
        self.saved[int(command.ext["queueId"])] = int(command.ext["commitOffset"])
        return encode_frame(response_command(command, UpdateOffsetResponse()))


async def test_a_broker_gets_one_offset_at_a_time() -> None:
    broker = CountingBroker()
    async with nameserver() as names, caller() as calls, serving(broker.receive) as server:
        await calls.call(names, registration(TOPIC, broker="a", address=str(server.address)))
        async with Instance.open(ClientSettings(nameservers=names)) as instance:
            await instance.routes.route(TOPIC)
            offsets = RemoteBrokerOffsetStore(instance, GROUP)
            queues = {MessageQueue(topic=TOPIC, broker_name="a", queue_id=number): 10 + number for number in range(4)}
            # Together, and separately, as queues are saved that are revoked one by one.
            await asyncio.gather(offsets.save(queues), *(offsets.save({queue: 20}) for queue in queues))
    assert broker.most == 1
    assert set(broker.saved.values()) == {20}


def _pulls(queue: ScriptedQueue) -> list[PullMessage]:
    return [request for request in queue.received_of(RequestCode.PULL_MESSAGE) if request.topic == TOPIC]


def _commits(pull: PullMessage) -> bool:
    return bool(pull.sys_flag & PullSysFlag.COMMIT_OFFSET)
