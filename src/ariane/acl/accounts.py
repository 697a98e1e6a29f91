"""The accounts of a server, from its file, and who signed a request. Broker and nameserver decide what they may do.

The file is checked for changes every few seconds. An invalid new file is only logged and the old rules stay: a mistake
in an editor must neither lock out all accounts nor grant access.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from ariane.acl.file import Document, read_rules, save_document, with_account, with_white_list, without_account
from ariane.acl.rules import Account, Rules, host_of, rules_of
from ariane.clock import Clock
from ariane.errors import RequestFailed, SettingsError, SignatureRequired
from ariane.lifecycle import background, every
from ariane.logs import RepeatedWarnings
from ariane.rpc.signature_checks import Signatures
from ariane.store.disk import Disk
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.acl import UpdateAccount
from ariane.wire.signature import SIGNATURE, SIGNATURE_V2, access_key_of

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 5.0  # as Apache's
_REASON_LENGTH_MAX = 500  # a reason quotes names from the request


class Accounts:
    """The base of what broker and nameserver check."""

    def __init__(self, disk: Disk, path: Path, clock: Clock, *, require_v2: bool = False) -> None:
        """Reads the file; SettingsError when it is missing or unusable. `require_v2` refuses Apache's signatures."""
        self._disk = disk
        self._path = path
        self._clock = clock
        self._stamp = self._stamp_now()
        self._document, self._rules = read_rules(disk, path)
        self.signatures = Signatures(clock, require_v2=require_v2)
        self._warnings = RepeatedWarnings(log)

    @asynccontextmanager
    async def reloading(self) -> AsyncIterator[Self]:
        """The rules; reloaded in the background when the file changes."""
        async with background(lambda: every(self._clock, POLL_INTERVAL_S, self.reload_if_changed, POLL_INTERVAL_S)):
            yield self

    @property
    def rules(self) -> Rules:
        return self._rules

    @property
    def document(self) -> Document:
        """The file's content, secrets included."""
        return self._document

    # --- who signed a request ---------------------------------------------------------------------------------------

    def account_of(self, host: str, ext: Mapping[str, str], *, counts: bool = True) -> Account:
        """The account that a request claims. `counts` is False where the same request is asked for again."""
        key = access_key_of(ext)
        if key is None:
            raise permission_denied("No accessKey is configured")
        account = self._rules.accounts.get(key)
        if account is None:
            if (problem := self.signatures.lockout.problem(host, key)) is not None:
                raise permission_denied(problem)
            if counts and (ext.get(SIGNATURE) or ext.get(SIGNATURE_V2)):
                self.signatures.lockout.fail(host, key, exists=False)
            raise permission_denied(f"No acl config for {key}")
        return account

    def verify(
        self,
        connection: Connection,
        host: str,
        account: Account,
        code: int,
        ext: Mapping[str, str],
        body: bytes,
        *,
        counts: bool = True,
    ) -> int | None:
        """Verifies the signature of `account`; returns the number for `signatures.use`. RequestFailed if not valid."""
        secret = account.secret.reveal()
        return self.signatures.verify(connection, host, account.access_key, secret, code, ext, body, counts=counts)

    def log_refusal(self, connection: Connection, error: RequestFailed) -> None:
        """Once a minute for each cause: anybody can be refused, as often as they like."""
        if isinstance(error, SignatureRequired):  # the client asks how to sign; a replay is counted
            return
        reason = error.remark[:_REASON_LENGTH_MAX]
        subject = host_of(connection.peer), reason
        self._warnings.warning("access refused", subject, {"peer": connection.peer, "reason": reason})

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


def permission_denied(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.NO_PERMISSION, remark)
