"""Answers to sends, written as bytes.

An answer like all others - one message, stored, a JSON header, a unique key - is filled into a template: 0.7 us, where
building it field by field takes 5. The template is the general answer with places for the numbers, so the two cannot
differ.
"""

import struct
from collections.abc import Iterable, Sequence

from ariane.broker.settings import BrokerSettings
from ariane.model.ids import QueueOffset
from ariane.rpc.handlers import encode_result
from ariane.store.append.batch import AppendedBatch
from ariane.store.append.draft import Appended, Draft
from ariane.wire.codes import RequestCode, ResponseCode, Serialization
from ariane.wire.exchange import response_command
from ariane.wire.frame import Command, encode_json_header
from ariane.wire.message_id import offset_message_id, offset_message_ids
from ariane.wire.requests.send import SendResponse

_PREFIX = struct.Struct(">iI")
_SUCCESS = ResponseCode.SUCCESS
_JSON = Serialization.JSON
_SEND = int(RequestCode.SEND_MESSAGE_V2)

# Numbers and texts that occur nowhere else in an answer, each replaced by a place for the real one.
_OPAQUE, _QUEUE_ID, _QUEUE_OFFSET = 1_111_111_111, 1_222_222_222, 1_333_333_333
_MESSAGE_ID, _KEY = "MESSAGEID", "UNIQUEKEY"


Asked = tuple[int | Command, str | None, str | None, int]
"""Who asked, by the opaque number if all else is as usual (`asked_by`); the message's unique key and WAIT, if any; and
the queue that was asked for, which is not where a half message is stored."""

Stored = tuple[Asked, Draft, Appended]


class SendResponses:
    def __init__(self, settings: BrokerSettings, store_host: bytes) -> None:
        self._settings = settings
        self._store_host = store_host
        self._host_text = offset_message_id(store_host, 0)[:-16].encode()
        self._templates: dict[tuple[str, bool], bytes] = {}
        self._batch_templates: dict[tuple[str, bool, bool], bytes] = {}

    def stored(self, messages: Iterable[Stored]) -> bytes:
        """All answers to one connection, for one write; nothing for those who do not want to know.

        Straight on for the usual ones: see `asked_by`.
        """
        settings = self._settings
        template = self._templates.get((settings.region_id, settings.trace_on)) or self._make_template()
        parts: list[bytes] = []
        for (asked, key, _, queue_id), draft, appended in messages:
            if type(asked) is int and key is not None:
                header = template % (
                    asked,
                    appended.physical_offset,
                    queue_id,
                    appended.queue_offset,
                    key.encode(),
                )
                parts += (_PREFIXES[len(header)] if len(header) < _USUAL_LENGTH else _prefix(header), header)
            else:
                parts.append(self.told(_SUCCESS, ((asked, key, None, queue_id), draft, appended)) or b"")
        return b"".join(parts)

    def batch_stored(self, opaque: int, unique_key: str | None, queue_id: int, appended: AppendedBatch) -> bytes:
        """The answer to a batch, from a template as well; the key, if any, `is_plain`. 4 us, field by field 16."""
        settings, ids = self._settings, offset_message_ids(self._store_host, appended.physical_offsets)
        kind = settings.region_id, settings.trace_on, unique_key is not None
        template = self._batch_templates.get(kind) or self._make_batch_template(kind)
        fields = (opaque, ids.encode(), queue_id, appended.queue_offset)
        header = template % (fields if unique_key is None else (*fields, unique_key.encode()))
        return _prefix(header) + header

    def told(self, code: ResponseCode, stored: Stored) -> bytes | None:
        """Any answer to one of them, field by field."""
        asked, _, appended = stored
        return encode_result(command_of(asked), self.answer(code, (appended,), asked[3], asked[1]))

    def answer(
        self, code: ResponseCode, appended: Sequence[Appended], queue_id: int, unique_key: str | None
    ) -> SendResponse:
        """Any answer, field by field."""
        if isinstance(appended, AppendedBatch):
            offsets = appended.physical_offsets
        else:
            offsets = [one.physical_offset for one in appended]
        ids = offset_message_ids(self._store_host, offsets)
        return self._answer(code, ids, queue_id, appended[0].queue_offset, unique_key)

    def _answer(
        self, code: ResponseCode, message_ids: str, queue_id: int, queue_offset: int, unique_key: str | None
    ) -> SendResponse:
        return SendResponse(
            code=code,
            remark=None if code == _SUCCESS else code.name,
            msg_id=message_ids,
            queue_id=queue_id,
            queue_offset=QueueOffset(queue_offset),
            transaction_id=unique_key,
            msg_region=self._settings.region_id,
            trace_on=self._settings.trace_on,
        )

    def _make_template(self) -> bytes:
        header = self._with_places(_KEY).replace(_MESSAGE_ID.encode(), self._host_text + b"%016X")
        self._templates[self._settings.region_id, self._settings.trace_on] = header
        return header

    def _make_batch_template(self, kind: tuple[str, bool, bool]) -> bytes:
        header = self._with_places(_KEY if kind[2] else None).replace(_MESSAGE_ID.encode(), b"%b")
        self._batch_templates[kind] = header
        return header

    def _with_places(self, unique_key: str | None) -> bytes:
        """The general answer, with places for all but the message ids."""
        response = self._answer(_SUCCESS, _MESSAGE_ID, _QUEUE_ID, _QUEUE_OFFSET, unique_key)
        header = encode_json_header(response_command(Command(code=0, opaque=_OPAQUE), response)).replace(b"%", b"%%")
        for number in (_OPAQUE, _QUEUE_ID, _QUEUE_OFFSET):
            header = header.replace(str(number).encode(), b"%d")
        return header.replace(_KEY.encode(), b"%b")


def asked_by(command: Command, unique_key: str | None) -> int | Command:
    """The opaque number, when the answer can be filled into the template with it.

    That is: a JSON header that wants an answer, and a unique key, if any, that can stand in JSON as it is.
    """
    is_usual = not command.flag and command.serialization is _JSON and is_plain(unique_key)
    return command.opaque if is_usual else command


def is_plain(unique_key: str | None) -> bool:
    return unique_key is None or (unique_key.isascii() and unique_key.isalnum())


def command_of(asked: Asked) -> Command:
    """What was asked, as far as an answer depends on it."""
    return Command(code=_SEND, opaque=asked[0]) if isinstance(asked[0], int) else asked[0]


def _prefix(header: bytes) -> bytes:
    return _PREFIX.pack(4 + len(header), len(header))


_USUAL_LENGTH = 512
_PREFIXES = tuple(_PREFIX.pack(4 + length, length) for length in range(_USUAL_LENGTH))
