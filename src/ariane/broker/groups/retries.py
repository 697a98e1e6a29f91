"""CONSUMER_SEND_MSG_BACK: a consumer could not use a message. Where it goes then is said in dead_letters.py."""

from dataclasses import dataclass

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.dead_letters import attempts_max, retry_topic, sent_back
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.broker.writer import InboundMessage, MessageWriter, incoming_of
from ariane.errors import RequestFailed, StoreError
from ariane.model.ids import DEAD_LETTER_PREFIX
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE, TIMER, TRANS_HALF, TRANS_OP
from ariane.model.topic import Permission
from ariane.rpc.handlers import Call, handles
from ariane.store.blocking_io import run_in_executor
from ariane.store.read.lookup import Lookup
from ariane.wire.codes import ResponseCode, Version
from ariane.wire.fields import Response
from ariane.wire.message_id import offset_message_id
from ariane.wire.record.read import RecordView, verify
from ariane.wire.requests.send import SendBack

# A consumer never gets a message from these. Sent back from here, a half message would be seen without a commit.
_NEVER_CONSUMED = frozenset({SCHEDULE, TIMER, TRANS_HALF, TRANS_OP})


@dataclass(frozen=True)
class RetryHandlers:
    intake: MessageWriter
    lookup: Lookup
    groups: Groups
    topics: Topics
    settings: BrokerSettings

    @handles(SendBack)
    async def send_back(self, request: SendBack, call: Call) -> Response:
        """SUCCESS only when the message is stored, durably where that is promised: the consumer then forgets it."""
        group = self.groups.find(request.group)
        self._check_writable()
        if group.retry_queue_nums <= 0:  # the group was set up to give failed messages up
            return Response()
        retry_topic(self.topics, group, unit_mode=request.unit_mode)
        record, view = await self._consumed(request.offset)
        named = request.max_reconsume_times if call.command.version >= Version.V3_4_9 else None
        message = sent_back(
            incoming_of(record),
            offset_message_id(view.store_host, view.physical_offset),
            group,
            request.delay_level,
            attempts_max(group, named),
            self.topics,
        )
        try:
            stored = self.intake.put(message)
        except StoreError as error:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"the message is not sent back: {error}") from error
        self._count(message, group.group_name, stored.size)
        code = await self.intake.durable(stored)
        if code != ResponseCode.SUCCESS:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR, f"{ResponseCode(code).name}: the message is sent back, perhaps not durably"
            )
        return Response()

    def _count(self, message: InboundMessage, group: str, size: int) -> None:
        first_topic = message.properties.get(Property.RETRY_TOPIC, message.topic)
        is_dead = message.topic.startswith(DEAD_LETTER_PREFIX)
        self.intake.counters.sent_back(first_topic, group, size, is_dead=is_dead)

    def _check_writable(self) -> None:
        if not self.settings.permission & Permission.WRITE:
            raise RequestFailed(
                ResponseCode.NO_PERMISSION,
                f"broker {self.settings.name} takes no messages (brokerPermission = {self.settings.permission}): "
                "send to another one",
            )

    async def _consumed(self, offset: int) -> tuple[memoryview, RecordView]:
        record = await run_in_executor(self.lookup.record_at_steps(offset)) if offset >= 0 else None
        view = None if record is None else verify(record, check_body_crc=False)
        if record is None or not isinstance(view, RecordView) or view.topic in _NEVER_CONSUMED:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"no message that a consumer can have begins at offset {offset}: it is deleted, or on another broker",
            )
        return record, view
