"""Access control (ACL 1.0): checks the permissions of each request before its handler runs.

    1  the address is on the global white list        allowed, except account management without an admin signature
    2  no access key, or an unknown one               denied
    3  the address is on the account's own white list allowed, except account management by a non-admin account
    4  too many bad signatures before                 denied for a while (rpc/lockout.py)
    5  the signature is wrong                         denied
    6  the request requires an administrator          denied, unless the account is one
    7  a topic or group without permission            denied
    8  the signature was used before                  denied (rpc/signatures.py)

What a request touches is not always in its fields: the topic of a message that is named by its offset, or a list of all
topics. For these the handlers ask `rights_of` (rights.py).

The file is checked for changes every few seconds. An invalid new file is only logged and the old rules stay: a mistake
in an editor must neither lock out all accounts nor grant access.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ariane.broker.acl.file import Document, read_rules, save_document, with_account, with_white_list, without_account
from ariane.broker.acl.requirements import manages_accounts, requirements_of, requires_admin
from ariane.broker.acl.rights import EVERYTHING, Rights
from ariane.broker.acl.rules import Account, Rules, host_of, rules_of
from ariane.clock import Clock
from ariane.errors import RequestFailed, SettingsError, SignatureRequired
from ariane.lifecycle import background, every
from ariane.rpc.handlers import Call
from ariane.rpc.signatures import Signatures
from ariane.store.disk import Disk
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.fast_frames import header_texts
from ariane.wire.fields import Request
from ariane.wire.frame import Command
from ariane.wire.requests.acl import UpdateAccount
from ariane.wire.requests.clients import Heartbeat
from ariane.wire.signature import SIGNATURE, SIGNATURE_V2, access_key_of

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 5.0  # as Apache's


class AccessControl:
    def __init__(self, disk: Disk, path: Path, clock: Clock, *, require_v2: bool = False) -> None:
        """Reads the file; SettingsError when it is missing or unusable. `require_v2` refuses Apache's signatures."""
        self._disk = disk
        self._path = path
        self._clock = clock
        self._stamp = self._stamp_now()
        self._document, self._rules = read_rules(disk, path)
        self.signatures = Signatures(clock, require_v2=require_v2)
        self._members: dict[Connection, str] = {}
        """The account of each connection's last heartbeat."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, disk: Disk, path: Path, clock: Clock, *, require_v2: bool = False
    ) -> AsyncIterator["AccessControl"]:
        """The rules; reloaded in the background when the file changes."""
        access = await asyncio.to_thread(partial(cls, disk, path, clock, require_v2=require_v2))
        async with background(lambda: every(clock, POLL_INTERVAL_S, access.reload_if_changed, POLL_INTERVAL_S)):
            yield access

    @property
    def rules(self) -> Rules:
        return self._rules

    @property
    def document(self) -> Document:
        """The file's content, secrets included."""
        return self._document

    # --- the guard --------------------------------------------------------------------------------------------------

    def guard(self, connection: Connection, command: Command, request: Request[Any]) -> None:
        """Called by the dispatcher. RequestFailed if the request is denied."""
        host = host_of(connection.peer)
        if self._rules.is_whitelisted(host) and not manages_accounts(type(request)):
            return
        try:
            self._check(connection, host, command.code, command.ext, command.body, request, counts=True)
        except SignatureRequired:  # the client asks for a challenge; a replay is counted
            raise
        except RequestFailed as error:
            log.warning("access refused", extra={"peer": connection.peer, "reason": error.remark})
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
        account = self._account_of(host, ext, counts)
        if account.is_whitelisted(host):
            if manages_accounts(type(request)) and not account.admin:
                raise _admin_required(code, account)
            return
        secret = account.secret.reveal()
        number = self.signatures.verify(connection, host, account.access_key, secret, code, ext, body, counts=counts)
        if requires_admin(type(request)):
            if not account.admin:
                raise _admin_required(code, account)
        else:
            for requirement in requirements_of(request):
                if not account.allows(requirement):
                    raise _permission_denied(f"No default permission for {requirement}")
        self.signatures.use(connection, number, counts=counts)

    def _account_of(self, host: str, ext: Mapping[str, str], counts: bool) -> Account:
        key = access_key_of(ext)
        if key is None:
            raise _permission_denied("No accessKey is configured")
        account = self._rules.accounts.get(key)
        if account is None:
            if (problem := self.signatures.lockout.problem(host, key)) is not None:
                raise _permission_denied(problem)
            if counts and (ext.get(SIGNATURE) or ext.get(SIGNATURE_V2)):
                self.signatures.lockout.fail(host, key, exists=False)
            raise _permission_denied(f"No acl config for {key}")
        return account

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

    # --- changes ----------------------------------------------------------------------------------------------------
    # Synchronous, on the event loop, as for every table: the response is sent when the change is durable or has failed.

    def put_account(self, change: UpdateAccount) -> None:
        """ValueError, SettingsError or OSError if it is invalid or cannot be saved; then nothing has changed."""
        self._replace(with_account(self._reloaded_document(), change, self._clock.now_ms()))

    def delete_account(self, access_key: str) -> bool:
        document = self._reloaded_document()
        if access_key not in self._rules.accounts:
            return False
        self._replace(without_account(document, access_key, self._clock.now_ms()))
        return True

    def set_white_list(self, patterns: list[str]) -> None:
        self._replace(with_white_list(self._reloaded_document(), patterns, self._clock.now_ms()))

    def _reloaded_document(self) -> Document:
        """Reloads the file first if it was edited, so that an update never overwrites manual changes."""
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._document, self._rules = read_rules(self._disk, self._path)
            self._stamp = stamp
        return self._document

    def _replace(self, document: Document) -> None:
        rules = rules_of(document)
        save_document(self._disk, self._path, document)
        self._document, self._rules, self._stamp = document, rules, self._stamp_now()

    # --- the file ---------------------------------------------------------------------------------------------------

    async def reload_if_changed(self) -> None:
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        before = self._stamp
        try:
            document, rules = await asyncio.to_thread(read_rules, self._disk, self._path)
        except SettingsError as error:
            self._stamp = stamp
            log.error("access file is invalid, the old rules stay", extra={"reason": str(error)})  # noqa: TRY400
            return
        # If the file changed during the read (by an editor or an admin request), the next check reads it again.
        if self._stamp == before and self._stamp_now() == stamp:
            self._document, self._rules, self._stamp = document, rules, stamp
            log.info("access rules loaded", extra={"file": str(self._path), "accounts": len(rules.accounts)})

    def _stamp_now(self) -> tuple[int, int] | None:
        """Modification time and size of the file; None if it does not exist."""
        try:
            return self._disk.modified_ms(self._path), self._disk.size(self._path) or 0
        except OSError:
            return None


def _permission_denied(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.NO_PERMISSION, remark)


def _admin_required(code: int, account: Account) -> RequestFailed:
    return _permission_denied(
        f"Need admin permission for request code={code}, but accessKey={account.access_key} is not"
    )
