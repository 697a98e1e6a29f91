"""Handler of CONSUMER_SEND_MSG_BACK: stores a message that a consumer failed to process (see dead_letters.py)."""

from dataclasses import dataclass

from ariane.broker.acl.rights import RightsOf, all_rights
from ariane.broker.groups.configs import Groups
from ariane.broker.groups.dead_letters import attempts_max, retry_topic, send_back_message
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.broker.writer import InboundMessage, MessageWriter, inbound_message_of
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

# Consumers never receive messages of these topics. A half message sent back would become visible without a commit.
_NEVER_CONSUMED = frozenset({SCHEDULE, TIMER, TRANS_HALF, TRANS_OP})


@dataclass(frozen=True)
class RetryHandlers:
    writer: MessageWriter
    lookup: Lookup
    groups: Groups
    topics: Topics
    settings: BrokerSettings
    rights_of: RightsOf = all_rights

    @handles(SendBack)
    async def send_back(self, request: SendBack, call: Call) -> Response:
        """SUCCESS only when the message is stored, durably if so configured: the consumer then drops it.

        The account must have the right to read the message where it is: its copy can be read with a right on the group.
        """
        group = self.groups.find(request.group, call.connection)
        self._check_writable()
        if group.retry_queue_nums <= 0:  # the group is configured to drop failed messages
            return Response()
        retry_topic(self.topics, group, unit_mode=request.unit_mode)
        record, view = await self._read_message(request.offset)
        self.rights_of(call).require_read_of_message(view.topic)
        client_limit = request.max_reconsume_times if call.command.version >= Version.V3_4_9 else None
        message = send_back_message(
            inbound_message_of(record),
            offset_message_id(view.store_host, view.physical_offset),
            group,
            request.delay_level,
            attempts_max(group, client_limit),
            self.topics,
        )
        try:
            if not self.topics.is_saved(message.topic):  # a crash would hide the message
                await self.topics.saved()
            stored = self.writer.put(message)
        except StoreError as error:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"the message was not sent back: {error}") from error
        self._count(message, group.group_name, stored.size)
        code = await self.writer.settled(stored)
        if code != ResponseCode.SUCCESS:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"{ResponseCode(code).name}: the message was sent back, but may not be durable",
            )
        return Response()

    def _count(self, message: InboundMessage, group: str, size: int) -> None:
        first_topic = message.properties.get(Property.RETRY_TOPIC, message.topic)
        is_dead = message.topic.startswith(DEAD_LETTER_PREFIX)
        self.writer.counters.sent_back(first_topic, group, size, is_dead=is_dead)

    def _check_writable(self) -> None:
        self.writer.check_accepting()
        if not self.settings.permission & Permission.WRITE:
            raise RequestFailed(
                ResponseCode.NO_PERMISSION,
                f"broker {self.settings.name} rejects messages (brokerPermission = {self.settings.permission}): "
                "send to another one",
            )

    async def _read_message(self, offset: int) -> tuple[memoryview, RecordView]:
        record = await run_in_executor(self.lookup.record_at_steps(offset)) if offset >= 0 else None
        view = None if record is None else verify(record, check_body_crc=False)
        if record is None or not isinstance(view, RecordView) or view.topic in _NEVER_CONSUMED:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"no consumable message starts at offset {offset}: it was deleted, or is on another broker",
            )
        return record, view
