"""Typed calls over blocking sockets, signed, with one connection to each address."""

import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ariane.client.settings import ClientSettings, ClientTlsSettings
from ariane.client.signing import Signer
from ariane.errors import TransportError
from ariane.transport.blocking import BlockingConnection
from ariane.transport.tls import client_context
from ariane.wire.command import Command
from ariane.wire.exchange import read_answer, request_command
from ariane.wire.fields import Answer, Request

A = TypeVar("A", bound=Answer)


class Calls:
    """Not for two threads at a time. After a fork the child opens connections of its own."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._signer = Signer.of(settings)
        self._tls = _tls(settings.tls)
        self._connections: dict[str, BlockingConnection] = {}
        self._pid = os.getpid()

    def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        return read_answer(request, self.connection(address).call(self.command(request), timeout_s))

    def call_all(self, address: str, requests: Sequence[Request[A]], timeout_s: float | None = None) -> list[Command]:
        """The raw answers: each may be a refusal, and the caller reads them one by one with `read_answer`."""
        return self.connection(address).call_all([self.command(request) for request in requests], timeout_s)

    def call_everywhere(
        self, asks: Mapping[str, Sequence[Request[Any]]], timeout_s: float | None = None
    ) -> dict[str, list[Command] | TransportError]:
        """For each address the raw answers, or what is wrong there. All of them work at the same time."""
        posted: dict[str, tuple[BlockingConnection, list[int]]] = {}
        outcomes: dict[str, list[Command] | TransportError] = {}
        for address, requests in asks.items():
            try:
                connection = self.connection(address)
                posted[address] = connection, connection.post_all([self.command(one) for one in requests])
            except TransportError as error:
                outcomes[address] = error
        for address, (connection, opaques) in posted.items():
            try:
                outcomes[address] = connection.take(opaques, timeout_s)
            except TransportError as error:
                outcomes[address] = error
        return outcomes

    def connection(self, address: str) -> BlockingConnection:
        if os.getpid() != self._pid:  # a child shares its parent's sockets: the two would read each other's answers
            self._connections, self._pid = {}, os.getpid()
        known = self._connections.get(address)
        if known is not None and known.is_stale:
            known.close()
        if known is None or not known.is_open:
            known = self._connections[address] = BlockingConnection.open(address, self.settings.transport, self._tls)
        return known

    @property
    def signs(self) -> bool:
        """Whether each request has a signature of its own."""
        return self._signer is not None

    def command(self, request: Request[Any]) -> Command:
        command = request_command(request, opaque=0)
        if self._signer is not None:
            self._signer.sign(command)
        return command

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def _tls(settings: ClientTlsSettings) -> ssl.SSLContext | None:
    if not settings.enable:
        return None
    context = client_context(settings.trust, settings.certificate, settings.key)
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
