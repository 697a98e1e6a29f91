"""A message on its way in, before anything is decided about it; and back from a stored record.

client's send ─┐
send-back ─────┤                rewrites                 draft_of
transactions ──┼─► Incoming ──(delay_rewrite.py)──► Incoming ──► Draft ──► commit log
delivery ──────┤      ▲                                                       │
replies ───────┘      └─────────────────── incoming_of ◄─────────────────────┘
"""

import msgspec

from ariane.errors import MessageRefused, RecordError
from ariane.model.message import Property
from ariane.store.draft import Draft
from ariane.wire.java_hash import tags_code
from ariane.wire.properties import encode_properties
from ariane.wire.record_view import RecordView, verify

SEAL = "__CRC32#"
"""The property that a sealed record ends with (wire/record_seal.py). Only the store writes it: a record that ends with
another's seal would count as damaged, and with it all that follows it in the log."""

_TAGS, _KEYS, _UNIQUE_KEY = Property.TAGS, Property.KEYS, Property.UNIQUE_KEY


class Incoming(msgspec.Struct, kw_only=True):
    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    born_timestamp_ms: int
    born_host: bytes
    """As a record holds it (wire/host.py)."""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def draft_of(message: Incoming) -> Draft:
    """MessageRefused when a property cannot be written."""
    properties = message.properties
    try:
        encoded = encode_properties(properties)
    except RecordError as error:
        raise MessageRefused(str(error)) from None
    return Draft(
        topic=message.topic,
        queue_id=message.queue_id,
        body=message.body,
        properties=encoded,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        tags_code=tags_code(properties.get(_TAGS)),
        keys=keys_of(properties),
    )


def keys_of(properties: dict[str, str]) -> tuple[str, ...]:
    return index_keys(properties.get(_UNIQUE_KEY), properties.get(_KEYS))


def index_keys(unique_key: str | None, keys: str | None) -> tuple[str, ...]:
    """What the index keeps: the unique key first, then the user's own, parted by single blanks."""
    if keys is None:
        return (unique_key,) if unique_key else ()
    if unique_key and " " not in keys:  # nearly always
        return unique_key, keys
    words = [key for key in keys.split(" ") if key]
    return (unique_key, *words) if unique_key else tuple(words)


def incoming_of(record: memoryview) -> Incoming:
    """A stored record as a message that can be put again; a RecordError when it is none."""
    view = verify(record, 0, check_body_crc=False)
    if not isinstance(view, RecordView):
        raise RecordError(f"no message that could be put again: {getattr(view, 'reason', 'a blank record')}")
    properties = view.properties()
    properties.pop(SEAL, None)
    return Incoming(
        topic=view.topic,
        queue_id=view.queue_id,
        body=view.body(record),
        properties=properties,
        born_timestamp_ms=view.born_timestamp_ms,
        born_host=view.born_host,
        flag=view.flag,
        sys_flag=view.sys_flag,
        reconsume_times=view.reconsume_times,
        prepared_transaction_offset=view.prepared_transaction_offset,
    )
