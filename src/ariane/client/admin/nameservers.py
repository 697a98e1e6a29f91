"""Nameservers: their key-value pairs and settings. They do not talk to each other, so a change goes to each of them."""

from collections.abc import Mapping

from ariane.client.admin.desk import Desk, absent_is_none
from ariane.client.admin.properties import properties_text, read_table
from ariane.client.admin.servers import PerNameserver
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.configs import (
    DeleteKeyValue,
    GetKeyValue,
    GetNameserverSettings,
    ListKeyValues,
    PutKeyValue,
    UpdateNameserverSettings,
)


class NameserverAdmin:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._desk.instance.settings.nameserver_list

    async def get(self, namespace: str, key: str) -> str | None:
        asked = self._desk.ask_nameserver(GetKeyValue(namespace, key))
        answer = await absent_is_none(asked, ResponseCode.QUERY_NOT_FOUND)
        return None if answer is None else answer.value

    async def pairs(self, namespace: str) -> dict[str, str]:
        """All pairs of a namespace; none when there is no such namespace."""
        asked = self._desk.ask_nameserver(ListKeyValues(namespace))
        answer = await absent_is_none(asked, ResponseCode.QUERY_NOT_FOUND)
        return {} if answer is None else answer.body.table

    async def put(self, namespace: str, key: str, value: str) -> list[str]:
        return (await self._desk.each_nameserver(PutKeyValue(namespace, key, value))).all(f"putting {key}")

    async def delete(self, namespace: str, key: str) -> list[str]:
        return (await self._desk.each_nameserver(DeleteKeyValue(namespace, key))).all(f"deleting {key}")

    async def config(self) -> PerNameserver[dict[str, str]]:
        """The settings in force, under RocketMQ's names."""
        answers = (await self._desk.each_nameserver(GetNameserverSettings())).some("reading settings")
        return answers.mapped(lambda answer: read_table(answer.body))

    async def set_config(self, settings: Mapping[str, str]) -> list[str]:
        """Only Apache's nameservers take it; ours refuse, for the request once let anybody write any file."""
        answers = await self._desk.each_nameserver(UpdateNameserverSettings(properties_text(settings)))
        return answers.all("changing settings")
