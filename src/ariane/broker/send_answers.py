"""Answers to sends, written as bytes.

An answer like all others - one message, stored, a JSON header - is filled into a template: building it field by field
takes a fifth of a send. The template is the general answer with places for the numbers, so the two cannot differ.
"""

import struct
from collections.abc import Sequence

from ariane.broker.settings import BrokerSettings
from ariane.model.ids import QueueOffset
from ariane.rpc.handlers import encode_outcome
from ariane.store.draft import Appended
from ariane.wire.codes import ResponseCode, Serialization
from ariane.wire.command import Command
from ariane.wire.exchange import answer_command
from ariane.wire.json_header import encode_json_header
from ariane.wire.message_id import offset_message_id
from ariane.wire.requests.send import SendAnswer

_JSON = Serialization.JSON
_PREFIX = struct.Struct(">iI")
_SUCCESS = ResponseCode.SUCCESS

# Numbers and texts that occur nowhere else in an answer, each replaced by a place for the real one.
_OPAQUE, _QUEUE_ID, _QUEUE_OFFSET = 1_111_111_111, 1_222_222_222, 1_333_333_333
_MESSAGE_ID, _KEY = "MESSAGEID", "UNIQUEKEY"


class SendAnswers:
    def __init__(self, settings: BrokerSettings, store_host: bytes) -> None:
        self._settings = settings
        self._store_host = store_host
        self._host_text = offset_message_id(store_host, 0)[:-16].encode()
        self._templates: dict[tuple[str, bool, bool], bytes] = {}

    def stored(self, command: Command, appended: Appended, queue_id: int, unique_key: str | None) -> bytes | None:
        """One message is stored. None when nobody wants to know."""
        if command.serialization is not _JSON or command.flag or (unique_key and not _is_plain(unique_key)):
            return encode_outcome(command, self.answer(_SUCCESS, (appended,), queue_id, unique_key))
        settings = self._settings
        shape = (settings.region_id, settings.trace_on, unique_key is None)
        template = self._templates.get(shape) or self._make_template(shape)
        physical, offset = appended.physical_offset, appended.queue_offset
        if unique_key is None:
            header = template % (command.opaque, self._host_text, physical, queue_id, offset)
        else:
            header = template % (command.opaque, self._host_text, physical, queue_id, offset, unique_key.encode())
        return _PREFIX.pack(4 + len(header), len(header)) + header

    def answer(
        self, code: ResponseCode, appended: Sequence[Appended], queue_id: int, unique_key: str | None
    ) -> SendAnswer:
        """Any answer, field by field."""
        ids = [offset_message_id(self._store_host, one.physical_offset) for one in appended]
        return self._answer(code, ",".join(ids), queue_id, appended[0].queue_offset, unique_key)

    def _answer(
        self, code: ResponseCode, message_ids: str, queue_id: int, queue_offset: int, unique_key: str | None
    ) -> SendAnswer:
        return SendAnswer(
            code=code,
            remark=None if code == _SUCCESS else code.name,
            msg_id=message_ids,
            queue_id=queue_id,
            queue_offset=QueueOffset(queue_offset),
            transaction_id=unique_key,
            msg_region=self._settings.region_id,
            trace_on=self._settings.trace_on,
        )

    def _make_template(self, shape: tuple[str, bool, bool]) -> bytes:
        key = None if shape[2] else _KEY
        answer = self._answer(_SUCCESS, _MESSAGE_ID, _QUEUE_ID, _QUEUE_OFFSET, key)
        header = encode_json_header(answer_command(Command(code=0, opaque=_OPAQUE), answer)).replace(b"%", b"%%")
        for number in (_OPAQUE, _QUEUE_ID, _QUEUE_OFFSET):
            header = header.replace(str(number).encode(), b"%d")
        header = header.replace(_MESSAGE_ID.encode(), b"%b%016X").replace(_KEY.encode(), b"%b")
        self._templates[shape] = header
        return header


def _is_plain(text: str) -> bool:
    """Whether it can stand in JSON as it is."""
    return text.isascii() and text.isalnum()
