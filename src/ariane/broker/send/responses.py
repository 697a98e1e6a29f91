"""Responses to sends, written as bytes.

The common response - one message, stored, a unique key - is filled into a template: 0.7 us, where building it field by
field takes 5. A template is made from the general response, so the two cannot differ. There is one for JSON headers;
for binary ones there is one for each queue and for each length of what is filled in, because the lengths are in it.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

from ariane.broker.send.drafts import PendingSend
from ariane.broker.settings import BrokerSettings
from ariane.model.ids import QueueOffset
from ariane.rpc.handlers import encode_result
from ariane.store.append.batch import AppendedBatch
from ariane.store.append.draft import Appended
from ariane.wire.codes import RequestCode, ResponseCode, Serialization
from ariane.wire.exchange import response_command
from ariane.wire.fast.fields import Opaque, command_of, opaque_of
from ariane.wire.fast.templates import BINARY_TEMPLATES_MAX, SAMPLE_OPAQUES, form_of_samples, sample_numbers
from ariane.wire.frame import Command, encode_frame, encode_json_header
from ariane.wire.message_id import offset_message_id, offset_message_ids
from ariane.wire.requests.send import SendResponse

_PREFIX = struct.Struct(">iI")
_SUCCESS = ResponseCode.SUCCESS
_BINARY = Serialization.BINARY
_SEND = int(RequestCode.SEND_MESSAGE_V2)

_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)

# Numbers and texts that occur nowhere else in a response, each replaced by a placeholder.
_OPAQUE, _QUEUE_ID, _QUEUE_OFFSET = 1_111_111_111, 1_222_222_222, 1_333_333_333
_MESSAGE_ID, _KEY = "MESSAGEID", "UNIQUEKEY"


class SendResponses:
    def __init__(self, settings: BrokerSettings, store_host: bytes) -> None:
        self._settings = settings
        self._store_host = store_host
        self._host_text = offset_message_id(store_host, 0)[:-16].encode()
        self._templates: dict[tuple[str, bool], bytes] = {}
        self._batch_templates: dict[tuple[str, bool, bool], bytes] = {}
        self._binary_templates: dict[tuple[str, bool], dict[tuple[int, ...], bytes]] = {}

    def stored(self, stored: Iterable[tuple[PendingSend, Appended]]) -> bytes:
        """All responses to one connection, for one write; nothing for one-way requests."""
        common = self._settings.region_id, self._settings.trace_on
        template, binary = self._templates.get(common) or self._make_template(), None
        parts: list[bytes] = []
        for pending, appended in stored:
            request, key, _, queue_id, _, _ = pending
            if type(request) is int and key is not None:
                header = template % (
                    request,
                    appended.physical_offset,
                    queue_id,
                    appended.queue_offset,
                    key.encode(),
                )
                parts += (_PREFIXES[len(header)] if len(header) < _COMMON_LENGTH else _prefix(header), header)
            elif type(request) is bytes and key is not None:
                if binary is None:
                    binary = self._binary_templates_of(common)
                offset, unique_key = b"%d" % appended.queue_offset, key.encode()
                kind = queue_id, len(offset), len(unique_key)
                form = binary.get(kind) or self._make_binary_template(binary, *kind)
                parts.append(form % (request, appended.physical_offset, offset, unique_key))
            else:
                parts.append(self.encoded(_SUCCESS, pending, appended) or b"")
        return b"".join(parts)

    def batch_stored(self, opaque: Opaque, unique_key: str | None, queue_id: int, appended: AppendedBatch) -> bytes:
        """The response to a batch, from a template as well; the key, if any, `is_plain`. 4 us, field by field 16."""
        settings, ids = self._settings, offset_message_ids(self._store_host, appended.physical_offsets)
        if isinstance(opaque, bytes):
            return self._binary_batch_stored(opaque, unique_key, queue_id, ids.encode(), appended.queue_offset)
        kind = settings.region_id, settings.trace_on, unique_key is not None
        template = self._batch_templates.get(kind) or self._make_batch_template(kind)
        fields = (opaque, ids.encode(), queue_id, appended.queue_offset)
        header = template % (fields if unique_key is None else (*fields, unique_key.encode()))
        return _prefix(header) + header

    def encoded(self, code: ResponseCode, pending: PendingSend, appended: Appended) -> bytes | None:
        """Any response to one of them, field by field."""
        request, key, _, queue_id, _, _ = pending
        return encode_result(send_command(request), self.response(code, (appended,), queue_id, key))

    def response(
        self, code: ResponseCode, appended: Sequence[Appended], queue_id: int, unique_key: str | None
    ) -> SendResponse:
        """Any response, field by field."""
        if isinstance(appended, AppendedBatch):
            offsets = appended.physical_offsets
        else:
            offsets = [record.physical_offset for record in appended]
        ids = offset_message_ids(self._store_host, offsets)
        return self._response(code, ids, queue_id, appended[0].queue_offset, unique_key)

    def _response(
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

    # --- templates ----------------------------------------------------------------------------------------------------

    def _make_template(self) -> bytes:
        header = self._with_placeholders(_KEY).replace(_MESSAGE_ID.encode(), self._host_text + b"%016X")
        self._templates[self._settings.region_id, self._settings.trace_on] = header
        return header

    def _make_batch_template(self, kind: tuple[str, bool, bool]) -> bytes:
        header = self._with_placeholders(_KEY if kind[2] else None).replace(_MESSAGE_ID.encode(), b"%b")
        self._batch_templates[kind] = header
        return header

    def _with_placeholders(self, unique_key: str | None) -> bytes:
        """The general response, with placeholders for all but the message ids."""
        response = self._response(_SUCCESS, _MESSAGE_ID, _QUEUE_ID, _QUEUE_OFFSET, unique_key)
        header = encode_json_header(response_command(Command(code=0, opaque=_OPAQUE), response)).replace(b"%", b"%%")
        for number in (_OPAQUE, _QUEUE_ID, _QUEUE_OFFSET):
            header = header.replace(str(number).encode(), b"%d")
        return header.replace(_KEY.encode(), b"%b")

    def _binary_templates_of(self, common: tuple[str, bool]) -> dict[tuple[int, ...], bytes]:
        templates = self._binary_templates.setdefault(common, {})
        if len(templates) >= BINARY_TEMPLATES_MAX:
            templates.clear()
        return templates

    def _make_binary_template(
        self, templates: dict[tuple[int, ...], bytes], queue_id: int, offset_digits: int, key_bytes: int
    ) -> bytes:
        host = self._host_text.decode()
        samples = self._binary_samples((host + "0" * 16, host + "F" * 16), queue_id, offset_digits, key_bytes)
        template = form_of_samples(*samples, b"%b", b"%016X", b"%b", b"%b")
        templates[queue_id, offset_digits, key_bytes] = template
        return template

    def _binary_batch_stored(
        self, opaque: bytes, unique_key: str | None, queue_id: int, ids: bytes, queue_offset: int
    ) -> bytes:
        templates = self._binary_templates_of((self._settings.region_id, self._settings.trace_on))
        offset, key = b"%d" % queue_offset, None if unique_key is None else unique_key.encode()
        kind = queue_id, len(offset), 0 if key is None else len(key), len(ids)
        template = templates.get(kind)
        if template is None:
            texts = "0" * len(ids), "F" * len(ids)
            samples = self._binary_samples(texts, queue_id, len(offset), kind[2])
            template = templates[kind] = form_of_samples(*samples, *[b"%b"] * (3 if key is None else 4))
        return template % ((opaque, ids, offset) if key is None else (opaque, ids, offset, key))

    def _binary_samples(
        self, message_ids: tuple[str, str], queue_id: int, offset_digits: int, key_bytes: int
    ) -> Iterator[bytes]:
        """Two general responses that differ in all that is filled in; without a unique key if it has no bytes."""
        keys = ("A" * key_bytes, "B" * key_bytes) if key_bytes else (None, None)
        for opaque, ids, offset, key in zip(
            SAMPLE_OPAQUES, message_ids, sample_numbers(offset_digits), keys, strict=True
        ):
            response = self._response(_SUCCESS, ids, queue_id, offset, key)
            yield encode_frame(response_command(Command(code=0, opaque=opaque, serialization=_BINARY), response))


def requester(command: Command, unique_key: str | None) -> Opaque | Command:
    """The opaque number, when the response can be filled into a template with it; else the command.

    That is: a header that wants a response, and a unique key, if any, that can stand in JSON as it is.
    """
    return command if command.flag or not is_plain(unique_key) else opaque_of(command)


def is_plain(unique_key: str | None) -> bool:
    return unique_key is None or (unique_key.isascii() and unique_key.isalnum())


def send_command(request: Opaque | Command) -> Command:
    """The request, as far as a response depends on it."""
    return request if isinstance(request, Command) else command_of(_SEND, request)


def batch_command(opaque: Opaque) -> Command:
    return command_of(_BATCH, opaque)


def _prefix(header: bytes) -> bytes:
    return _PREFIX.pack(4 + len(header), len(header))


_COMMON_LENGTH = 512
_PREFIXES = tuple(_PREFIX.pack(4 + length, length) for length in range(_COMMON_LENGTH))
