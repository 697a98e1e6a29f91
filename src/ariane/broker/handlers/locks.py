"""Locks of ordered consumption."""

from dataclasses import dataclass

from ariane.broker.consume_stats import queue_count
from ariane.broker.queue_locks import QueueLocks
from ariane.broker.topics import Topics
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.model.ids import group_fault
from ariane.model.route import MessageQueue
from ariane.rpc.handlers import Call, handles
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer
from ariane.wire.requests.clients import LockAnswer, LockedQueues, LockQueues, UnlockQueues


@dataclass(frozen=True)
class LockHandlers:
    locks: QueueLocks
    topics: Topics
    clock: Clock

    @handles(LockQueues)
    def lock(self, ask: LockQueues, call: Call) -> LockAnswer:
        if ask.body is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, "a lock request without a body names no queue")
        if (fault := group_fault(ask.body.consumer_group)) is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, fault)
        real = [queue for queue in ask.body.mq_set if self._is_real(queue)]
        granted = self.locks.lock(ask.body.consumer_group, ask.body.client_id, real, self.clock.monotonic())
        return LockAnswer(body=LockedQueues(locked=granted))

    @handles(UnlockQueues)
    def unlock(self, ask: UnlockQueues, call: Call) -> Answer:
        if ask.body is not None:
            self.locks.unlock(ask.body.consumer_group, ask.body.client_id, ask.body.mq_set)
        return Answer()

    def _is_real(self, queue: MessageQueue) -> bool:
        """A lock on a queue that is not here keeps nobody out, and would take memory for nothing."""
        config = self.topics.get(queue.topic)
        return config is not None and 0 <= queue.queue_id < queue_count(config)
