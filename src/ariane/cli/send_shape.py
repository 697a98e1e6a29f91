"""From what was typed or piped in to messages: a shape from the options, filled with bodies, or whole JSON lines.

    {"body": "...", "tags": "paid", "keys": ["o-1"], "properties": {"region": "eu"}, "shardingKey": "o-1"}

The fields that `ariane tail -o jsonl` prints are understood, so one topic can be piped into another.
"""

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ariane.errors import MessageRejected
from ariane.model.message import RESERVED_PROPERTIES, Message, Property

_PLACES = frozenset(
    {"topic", "brokerName", "queueId", "queueOffset", "storeTime", "storeTimestamp", "bornTimestamp"}
    | {"msgId", "offsetMsgId", "reconsumeTimes", "fault", "originTopic"}
    | {"queueTopic", "bornTime", "bornHost", "storeHost", "physicalOffset", "storedSize", "sysFlag", "bodyCrc"}
)
"""What `tail`, `msg` and `dlq` tell of where a message was: of no use for a new one."""
_FIELDS = frozenset({"body", "bodyEncoding", "tags", "keys", "properties", "shardingKey", "delayLevel", "deliverAt"})
_NUMBER = "{n}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    topic: str
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    sharding_key: str | None = None
    delay_level: int = 0
    deliver_at: int | None = None

    def message(self, body: bytes) -> Message:
        return Message(
            topic=self.topic,
            body=body,
            tags=self.tags,
            keys=self.keys,
            properties=self.properties,
            sharding_key=self.sharding_key,
            delay_level=self.delay_level,
            deliver_at=self.deliver_at,
        )

    def numbered(self, body: bytes, number: int) -> Message:
        """`{n}` in the body, the keys and the sharding key is the message's number."""
        text = str(number)
        message = self.message(body.replace(_NUMBER.encode(), text.encode()))
        keys = tuple(key.replace(_NUMBER, text) for key in self.keys)
        sharding_key = self.sharding_key.replace(_NUMBER, text) if self.sharding_key is not None else None
        return replace(message, keys=keys, sharding_key=sharding_key)

    def from_json(self, line: bytes, number: int) -> Message:
        """What the line does not say is as in the shape. MessageRejected names the line."""
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise MessageRejected("it is no JSON object")
            return self._from_row(row)
        except json.JSONDecodeError as error:
            raise MessageRejected(f"line {number}: it is no JSON: {error.msg} at character {error.colno}") from None
        except (ValueError, RecursionError, MessageRejected) as error:
            raise MessageRejected(f"line {number}: {error}") from error

    def _from_row(self, row: dict[str, Any]) -> Message:
        unknown = row.keys() - _FIELDS - _PLACES
        if unknown:
            raise MessageRejected(f"unknown field {sorted(unknown)[0]!r}: known are {', '.join(sorted(_FIELDS))}")
        if "body" not in row:
            raise MessageRejected('it has no field "body"')
        if row.get("fault"):
            raise MessageRejected(f"its body is not what was sent: {row['fault']}")
        properties = _texts(row.get("properties") or {})
        sharding_key = row.get("shardingKey") or properties.get(Property.SHARDING_KEY) or self.sharding_key
        own = {name: value for name, value in properties.items() if name not in RESERVED_PROPERTIES}
        return Message(
            topic=self.topic,
            body=_body(row["body"], row.get("bodyEncoding", "utf-8")),
            tags=_text("tags", row.get("tags")) or self.tags,
            keys=_keys(row.get("keys")) or self.keys,
            properties={**self.properties, **own},
            sharding_key=_text("shardingKey", sharding_key),
            delay_level=_number("delayLevel", row.get("delayLevel")) or self.delay_level,
            deliver_at=_number("deliverAt", row.get("deliverAt")) or self.deliver_at,
        )


def _body(body: object, encoding: object) -> bytes:
    if not isinstance(body, str):
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    if encoding == "utf-8":
        return body.encode()
    if encoding != "base64":
        raise MessageRejected(f"bodyEncoding {encoding!r}: known are utf-8 and base64")
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise MessageRejected(f"the body is not base64: {error}") from None


def _keys(keys: object) -> tuple[str, ...]:
    if keys is None or isinstance(keys, str):
        return tuple((keys or "").split())
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        return tuple(keys)
    raise MessageRejected(f"keys are a text or a list of texts, not {keys!r}")


def _texts(properties: object) -> dict[str, str]:
    if isinstance(properties, dict) and all(isinstance(value, str) for value in properties.values()):
        return properties
    raise MessageRejected("properties are an object whose values are texts")


def _text(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise MessageRejected(f"{name} is a text, not {value!r}")


def _number(name: str, value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise MessageRejected(f"{name} is a whole number, not {value!r}")
