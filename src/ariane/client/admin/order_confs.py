"""The queues of ordered topics, which nameservers keep as a pair: topic to `broker-a:4;broker-b:4`."""

from collections.abc import Mapping

from ariane.client.admin.desk import Desk, absent_is_none
from ariane.errors import ClientError
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.configs import DeleteKeyValue, GetKeyValue, PutKeyValue

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


class OrderConfs:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def get(self, topic: str) -> dict[str, int] | None:
        asked = self._desk.ask_nameserver(GetKeyValue(ORDER_NAMESPACE, topic))
        answer = await absent_is_none(asked, ResponseCode.QUERY_NOT_FOUND)
        return None if answer is None or not answer.value else _read(topic, answer.value)

    async def put(self, topic: str, queues: Mapping[str, int]) -> None:
        text = ";".join(f"{broker}:{count}" for broker, count in sorted(queues.items()))
        (await self._desk.each_nameserver(PutKeyValue(ORDER_NAMESPACE, topic, text))).all("setting the order conf")

    async def delete(self, topic: str) -> None:
        (await self._desk.each_nameserver(DeleteKeyValue(ORDER_NAMESPACE, topic))).all("deleting the order conf")


def _read(topic: str, text: str) -> dict[str, int]:
    try:
        return {name: int(count) for name, _, count in (part.rpartition(":") for part in text.split(";") if part)}
    except ValueError:
        raise ClientError(
            f"the order conf of {topic} is {text[:200]!r}: expected broker-a:4;broker-b:4; set it anew"
        ) from None
