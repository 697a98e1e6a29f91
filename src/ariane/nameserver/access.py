"""Access control of the nameserver: reads are open, brokers register, administrators do the rest.

    NOTHING   routes, lists, key-value pairs that are read: clients that do not sign find their brokers, as in Apache
    BROKER    registration and heartbeat of a broker: an account with the broker's name (or `*`) in `brokers`
    ADMIN     whatever changes the cluster, and the settings: an account with `admin: true`

Who may register a broker may still not take the place of a live one. A name and id that another address holds, or an
address that another name holds, is left to an account that has exactly that name in `brokers`, or an administrator. A
broker that returns with another address while the nameserver still waits for the old one is such a case, and so is the
mistake of two brokers with the same name. A broker that connects again with its own account, address and host takes its
own place.

Addresses on the global white list need no signature: Apache's brokers of 4.x, which do not sign, can register from
there.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

from ariane.acl.accounts import Accounts, permission_denied
from ariane.acl.rules import Account, host_of
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.rpc.failures import request_name
from ariane.rpc.handlers import Call
from ariane.store.disk import RealDisk
from ariane.transport.connection import Connection
from ariane.wire.fields import Request
from ariane.wire.frame import Command
from ariane.wire.requests import brokers, topics
from ariane.wire.signature import access_key_of


class Need(Enum):
    NOTHING = "nothing"
    BROKER = "an account with the broker's name in brokers"
    ADMIN = "an account with admin: true"


_NEEDS: Final[dict[type[Request[Any]], Need]] = {
    topics.GetRoute: Need.NOTHING,
    topics.GetCluster: Need.NOTHING,
    topics.ListTopics: Need.NOTHING,
    topics.ListTopicsByCluster: Need.NOTHING,
    topics.ListSystemTopics: Need.NOTHING,
    topics.ListUnitTopics: Need.NOTHING,
    topics.ListUnitSubscribedTopics: Need.NOTHING,
    topics.ListUnitSubscribedPlainTopics: Need.NOTHING,
    brokers.GetKeyValue: Need.NOTHING,
    brokers.ListKeyValues: Need.NOTHING,
    brokers.RegisterBroker: Need.BROKER,
    brokers.UnregisterBroker: Need.BROKER,
    brokers.QueryDataVersion: Need.BROKER,
    brokers.BrokerHeartbeat: Need.BROKER,
    brokers.WipeWritePermission: Need.ADMIN,
    brokers.AddWritePermission: Need.ADMIN,
    brokers.PutKeyValue: Need.ADMIN,
    brokers.DeleteKeyValue: Need.ADMIN,
    brokers.GetNameserverSettings: Need.ADMIN,
    topics.DeleteTopicInNameserver: Need.ADMIN,
}


def need_of(request: type[Request[Any]]) -> Need:
    """A request that is not listed needs an administrator: a new one is closed until it is decided."""
    return _NEEDS.get(request, Need.ADMIN)


class NameserverAccess(Accounts):
    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path, clock: Clock, *, require_v2: bool = False) -> AsyncIterator["NameserverAccess"]:
        """The accounts; reloaded in the background when the file changes."""
        access = await asyncio.to_thread(partial(cls, RealDisk(), path, clock, require_v2=require_v2))
        async with access.reloading():
            yield access

    def guard(self, connection: Connection, command: Command, request: Request[Any]) -> None:
        """Called by the dispatcher. RequestFailed if the request is denied."""
        need = need_of(type(request))
        host = host_of(connection.peer)
        if need is Need.NOTHING or self.rules.is_whitelisted(host):
            return
        try:
            self._check(connection, host, command, request, need)
        except RequestFailed as error:
            self.log_refusal(connection, error)
            raise

    def _check(self, connection: Connection, host: str, command: Command, request: Request[Any], need: Need) -> None:
        if access_key_of(command.ext) is None:
            raise permission_denied(_unsigned_text(command.code, need))
        account = self.account_of(host, command.ext)
        number = None
        if not account.is_whitelisted(host):
            number = self.verify(connection, host, account, command.code, command.ext, command.body)
        _check_right(account, need, command.code, request)
        self.signatures.use(connection, number)

    def owns(self, call: Call, broker_name: str) -> bool:
        """Whether an admitted request is by an account that may replace a live broker of this name."""
        account = self.rules.accounts.get(self.key_of(call) or "")
        return account is not None and account.owns(broker_name)

    def key_of(self, call: Call) -> str | None:
        """The access key of an admitted request; None from the global white list, where no key was verified."""
        is_verified = not self.rules.is_whitelisted(host_of(call.connection.peer))
        return access_key_of(call.command.ext) if is_verified else None


def _check_right(account: Account, need: Need, code: int, request: Request[Any]) -> None:
    is_allowed = account.admin
    if need is Need.BROKER:
        is_allowed = account.registers(getattr(request, "broker_name"))  # noqa: B009 - all requests of brokers have it
    if not is_allowed:
        raise permission_denied(
            f"{request_name(code)} needs {need.value}; accessKey={account.access_key} is another kind of account"
        )


def _unsigned_text(code: int, need: Need) -> str:
    hint = "set the access key and secret key of an administrator"
    if need is Need.BROKER:
        hint = (
            "set namesrvAccessKey and namesrvSecretKey at the broker; for a broker that does not sign, such as "
            "Apache's, add its address to globalWhiteRemoteAddresses of the nameserver's accounts"
        )
    return f"{request_name(code)} is not signed, and this nameserver has access control: {hint}"
