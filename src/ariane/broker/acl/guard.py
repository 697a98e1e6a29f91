"""Access control (ACL 1.0): checks the permissions of each request before its handler runs.

    1  the address is on the global white list        allowed, except account management without an admin signature
    2  no access key, or an unknown one               denied
    3  the address is on the account's own white list allowed, except account management by a non-admin account
    4  too many bad signatures before                 denied for a while (rpc/lockout.py)
    5  the signature is wrong                         denied
    6  the request requires an administrator          denied, unless the account is one
    7  a topic or group without permission            denied
    8  the signature was used before                  denied (rpc/signature_checks.py)

What a request touches is not always in its fields: the topic of a message that is named by its offset, or a list of all
topics. For these the handlers ask `rights_of` (rights.py).
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ariane.acl.accounts import Accounts, permission_denied
from ariane.acl.rules import Account, host_of
from ariane.broker.acl.requirements import manages_accounts, requirements_of, requires_admin
from ariane.broker.acl.rights import EVERYTHING, Rights
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.rpc.handlers import Call
from ariane.store.disk import Disk
from ariane.transport.connection import Connection
from ariane.wire.fast.decoders import header_texts
from ariane.wire.fields import Request
from ariane.wire.frame import Command
from ariane.wire.requests.clients import Heartbeat
from ariane.wire.signature import access_key_of


class AccessControl(Accounts):
    def __init__(self, disk: Disk, path: Path, clock: Clock, *, require_v2: bool = False) -> None:
        super().__init__(disk, path, clock, require_v2=require_v2)
        self._members: dict[Connection, str] = {}
        """The account of each connection's last heartbeat."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, disk: Disk, path: Path, clock: Clock, *, require_v2: bool = False
    ) -> AsyncIterator["AccessControl"]:
        """The rules; reloaded in the background when the file changes."""
        access = await asyncio.to_thread(partial(cls, disk, path, clock, require_v2=require_v2))
        async with access.reloading():
            yield access

    # --- the guard --------------------------------------------------------------------------------------------------

    def guard(self, connection: Connection, command: Command, request: Request[Any]) -> None:
        """Called by the dispatcher. RequestFailed if the request is denied."""
        host = host_of(connection.peer)
        if self._rules.is_whitelisted(host) and not manages_accounts(type(request)):
            return
        try:
            self._check(connection, host, command.code, command.ext, command.body, request, counts=True)
        except RequestFailed as error:
            self.log_refusal(connection, error)
            raise
        if isinstance(request, Heartbeat):
            self._note_member(connection, command)

    def admits_frame(self, connection: Connection, request: Request[Any], header: bytes, body: bytes) -> bool:
        """The same decision for the fast path, without a reason: the general path asks `guard` again and reports it.

        `request` is a send or a pull. Its signature is verified over the same texts of the same header.
        """
        host = host_of(connection.peer)
        if self._rules.is_whitelisted(host):
            return True
        texts = header_texts(header)
        if texts is None:
            return False
        try:
            self._check(connection, host, *texts, body, request, counts=False)
        except RequestFailed:
            return False
        return True

    def _check(
        self,
        connection: Connection,
        host: str,
        code: int,
        ext: Mapping[str, str],
        body: bytes,
        request: Request[Any],
        *,
        counts: bool,
    ) -> None:
        account = self.account_of(host, ext, counts=counts)
        if account.is_whitelisted(host):
            if manages_accounts(type(request)) and not account.admin:
                raise _admin_required(code, account)
            return
        number = self.verify(connection, host, account, code, ext, body, counts=counts)
        if requires_admin(type(request)):
            if not account.admin:
                raise _admin_required(code, account)
        else:
            for requirement in requirements_of(request):
                if not account.allows(requirement):
                    raise permission_denied(f"No default permission for {requirement}")
        self.signatures.use(connection, number, counts=counts)

    # --- rights beyond the fields of a request ----------------------------------------------------------------------

    def rights_of(self, call: Call) -> Rights:
        """The rights of the account behind a request that the guard has admitted."""
        host = host_of(call.connection.peer)
        if self._rules.is_whitelisted(host):
            return EVERYTHING
        return self._rights(host, access_key_of(call.command.ext))

    def rights_of_member(self, connection: Connection) -> Rights:
        """The rights of the account that signed the last heartbeat on this connection."""
        host = host_of(connection.peer)
        if self._rules.is_whitelisted(host):
            return EVERYTHING
        return self._rights(host, self._members.get(connection))

    def _rights(self, host: str, key: str | None) -> Rights:
        account = None if key is None else self._rules.accounts.get(key)
        if account is None:  # deleted in the meantime
            return Rights(lambda _: False)
        return EVERYTHING if account.is_whitelisted(host) else Rights(account.allows)

    def _note_member(self, connection: Connection, command: Command) -> None:
        key = access_key_of(command.ext)
        if key is None or not connection.is_open:
            return
        if connection not in self._members:
            connection.on_close(partial(self._forget_member, connection))
        self._members[connection] = key

    def _forget_member(self, connection: Connection) -> None:
        self._members.pop(connection, None)


def _admin_required(code: int, account: Account) -> RequestFailed:
    return permission_denied(
        f"Need admin permission for request code={code}, but accessKey={account.access_key} is not"
    )
