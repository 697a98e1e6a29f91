"""etcd by its JSON gateway (`/v3/...`), with several endpoints, TLS, and accounts.

    calls        one kept connection; each try has a time limit, then the next endpoint
    keepalives   one of their own, so that a slow call does not cost the lease
    watches      one each, always at another endpoint than the last: one that hangs is not asked again

A read or a keepalive is tried at every endpoint once. A transaction is tried elsewhere only while it has not left: as
soon as it may have arrived, its outcome is unknown, also when etcd answers with an error ("request timed out" may be
done later). Keys and values are base64, 64-bit numbers are strings, and what is 0 or empty is left out.

Some versions of etcd may lose what they had committed when a member is killed (`bad_version`).
"""

import asyncio
import re
import ssl
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ariane.errors import (
    MetaError,
    MetaLeaseGone,
    MetaOutcomeUnknown,
    MetaRefused,
    MetaUnavailable,
    MetaWatchEnded,
    SettingsError,
)
from ariane.model.address import Address
from ariane.replication.meta import (
    Change,
    Changes,
    Delete,
    Field,
    KeyValue,
    Lease,
    Outcome,
    Put,
    Reading,
    Transaction,
    prefix_end,
)
from ariane.replication.meta.http import HttpConnection, Response, ResponseError
from ariane.settings import Secret

TRY_S = 0.8
"""For one try at one endpoint, connecting included: with three of them, a lease of 3 s survives two that hang."""
READ_KEYS_MAX = 2_000

T = TypeVar("T")

# --- messages of etcd -------------------------------------------------------------------------------------------------

_Int64 = Annotated[str, Meta(pattern=r"^-?[0-9]{1,19}$")] | int


class _Header(msgspec.Struct):
    revision: _Int64 = 0


class _Kv(msgspec.Struct):
    key: str
    value: str = ""
    create_revision: _Int64 = 0
    mod_revision: _Int64 = 0
    lease: _Int64 = 0

    def decoded(self) -> KeyValue:
        numbers = (int(self.create_revision), int(self.mod_revision), int(self.lease))
        return KeyValue(_text(self.key), b64decode(self.value, validate=True), *numbers)


class _Range(msgspec.Struct):
    header: _Header
    kvs: list[_Kv] = []
    more: bool = False


class _Txn(msgspec.Struct):
    header: _Header
    succeeded: bool = False


class _Grant(msgspec.Struct):
    ID: _Int64
    TTL: _Int64


class _KeepAliveResult(msgspec.Struct):
    TTL: _Int64 = 0


class _KeepAlive(msgspec.Struct):
    result: _KeepAliveResult


class _Event(msgspec.Struct):
    kv: _Kv
    type: str = "PUT"

    def decoded(self) -> Change:
        kv = self.kv.decoded()
        return Change(kv.key, None if self.type == "DELETE" else kv, kv.mod_revision)


class _WatchResult(msgspec.Struct):
    header: _Header = msgspec.field(default_factory=_Header)
    events: list[_Event] = []
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: _Int64 = 0


class _Watch(msgspec.Struct):
    result: _WatchResult | None = None
    error: dict[str, Any] | None = None


class _Failure(msgspec.Struct):
    code: int = 2
    message: str = ""
    error: str = ""


class _Token(msgspec.Struct):
    token: str


class _Version(msgspec.Struct):
    etcdserver: Annotated[str, Meta(max_length=100)]


class _Code:
    """Of gRPC, as far as they say something here."""

    INVALID = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    UNAUTHENTICATED = 16
    REFUSALS = frozenset({INVALID, PERMISSION_DENIED, 12})


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _key(text: str) -> str:
    return _base64(text.encode())


def _text(key: str) -> str:
    return b64decode(key, validate=True).decode()


def _range(prefix: str) -> dict[str, str]:
    return {"key": _key(prefix), "range_end": _base64(prefix_end(prefix))}


_TARGETS = {Field.CREATED: "CREATE", Field.MODIFIED: "MOD", Field.LEASE: "LEASE", Field.VALUE: "VALUE"}


def _encode_transaction(transaction: Transaction) -> dict[str, Any]:
    compares = [
        {
            "key": _key(compare.key),
            "target": _TARGETS[compare.field],
            "result": "EQUAL",
            compare.field.value: _base64(compare.expected)
            if isinstance(compare.expected, bytes)
            else str(compare.expected),
        }
        for compare in transaction.compares
    ]
    changes = [
        {"request_put": {"key": _key(change.key), "value": _base64(change.value), "lease": str(change.lease)}}
        if isinstance(change, Put)
        else {"request_delete_range": {"key": _key(change.key)}}
        for change in transaction.changes
        if isinstance(change, Put | Delete)
    ]
    return {"compare": compares, "success": changes}


# --- versions ---------------------------------------------------------------------------------------------------------


def bad_version(version: str) -> str | None:
    """Why a group should not be kept by this version of etcd; None when nothing is known against it."""
    numbers = re.match(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})", version)
    if numbers is None:
        return f"etcd says that its version is {version[:40]!r}, which cannot be compared"
    found = tuple(int(number) for number in numbers.groups())
    if found < (3, 4, 22):
        return f"etcd {version} is too old: use 3.4.22 or later"
    if (3, 5, 0) <= found <= (3, 5, 2) or found == (3, 5, 5):
        return f"etcd {version} may lose what it has committed when one of its members is killed: use 3.5.6 or later"
    return None


# --- connections ------------------------------------------------------------------------------------------------------


class _Channel:
    """A kept connection to one endpoint after the other."""

    def __init__(self, endpoints: Sequence[Address], context: ssl.SSLContext | None, first: int = 0) -> None:
        self._endpoints = endpoints
        self._context = context
        self._index = first % len(endpoints)
        self._connection: HttpConnection | None = None
        self._lock = asyncio.Lock()

    @property
    def endpoint(self) -> Address:
        return self._endpoints[self._index]

    def next_endpoint(self) -> None:
        self.close()
        self._index = (self._index + 1) % len(self._endpoints)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def call(
        self, method: str, path: str, body: bytes, token: Callable[[], str | None], *, once: bool
    ) -> Response:
        """At the first endpoint that answers. `once`: not again after it may have left."""
        async with self._lock:
            failures = []
            for _ in self._endpoints:
                has_left = False
                try:
                    async with asyncio.timeout(TRY_S):
                        connection = await self._open()
                        has_left = True
                        response = await connection.request(method, path, body, token())
                except (OSError, ResponseError) as error:  # TimeoutError is an OSError
                    failures.append(f"{self.endpoint}: {_reason(error)}")
                    self.next_endpoint()
                    if has_left and once:
                        raise MetaOutcomeUnknown(f"etcd did not answer a transaction: {failures[-1]}") from None
                else:
                    if once or not _is_elsewhere_better(response):
                        return response
                    failures.append(f"{self.endpoint}: {_failure(response)}")
                    self.next_endpoint()
            raise MetaUnavailable(f"no endpoint of etcd answered: {'; '.join(failures)}")

    async def _open(self) -> HttpConnection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await HttpConnection.open(self.endpoint, self._context)
        return self._connection


def _reason(error: Exception) -> str:
    return f"no answer within {TRY_S} s" if isinstance(error, TimeoutError) else str(error) or type(error).__name__


def _is_elsewhere_better(response: Response) -> bool:
    """No leader, overloaded, out of space, cut off: another member may be better off."""
    if response.status == 200:
        return False
    return _failure_code(response) not in _Code.REFUSALS | {_Code.NOT_FOUND, _Code.UNAUTHENTICATED}


def _failure_code(response: Response) -> int:
    try:
        return msgspec.json.decode(response.body, type=_Failure).code
    except (msgspec.MsgspecError, RecursionError):
        return 2  # gRPC: unknown


def _failure(response: Response) -> str:
    try:
        failure = msgspec.json.decode(response.body, type=_Failure)
    except (msgspec.MsgspecError, RecursionError):
        return f"HTTP status {response.status}"
    return f"{failure.message or failure.error} (code {failure.code})"[:500]


# --- the store --------------------------------------------------------------------------------------------------------


class EtcdStore:
    """A MetaStore. Open it with `EtcdStore.open`, which closes its connections."""

    def __init__(
        self,
        endpoints: Sequence[Address],
        context: ssl.SSLContext | None = None,
        user: str | None = None,
        password: Secret | None = None,
    ) -> None:
        if not endpoints:
            raise SettingsError("no endpoint of etcd is given: name at least one, for example 127.0.0.1:2379")
        if (user is None) != (password is None):
            raise SettingsError("the user of etcd and its password come together: set both or none")
        self._endpoints = tuple(endpoints)
        self._context = context
        self._user, self._password = user, password
        self._token: str | None = None
        self._calls = _Channel(self._endpoints, context)
        self._keepalives = _Channel(self._endpoints, context)
        self._watches = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        endpoints: Sequence[Address],
        context: ssl.SSLContext | None = None,
        user: str | None = None,
        password: Secret | None = None,
    ) -> AsyncIterator["EtcdStore"]:
        store = cls(endpoints, context, user, password)
        try:
            yield store
        finally:
            store._calls.close()
            store._keepalives.close()

    async def read(self, prefix: str) -> Reading:
        answer = await self._post("/v3/kv/range", {**_range(prefix), "limit": str(READ_KEYS_MAX)}, _Range)
        if answer.more:
            raise MetaRefused(f"more than {READ_KEYS_MAX} keys begin with {prefix}: something else writes there")
        return Reading(int(answer.header.revision), _decoded(lambda: tuple(kv.decoded() for kv in answer.kvs)))

    async def transact(self, transaction: Transaction) -> Outcome:
        answer = await self._post("/v3/kv/txn", _encode_transaction(transaction), _Txn, once=True)
        return Outcome(answer.succeeded, int(answer.header.revision))

    async def grant(self, ttl_s: int) -> Lease:
        answer = await self._post("/v3/lease/grant", {"TTL": str(ttl_s)}, _Grant)
        return Lease(int(answer.ID), float(answer.TTL))

    async def keep_alive(self, lease: int) -> float:
        answer = await self._post("/v3/lease/keepalive", {"ID": str(lease)}, _KeepAlive, channel=self._keepalives)
        ttl_s = float(answer.result.TTL)
        if ttl_s <= 0:
            raise MetaLeaseGone(f"the lease {lease:x} has expired, or was revoked")
        return ttl_s

    async def revoke(self, lease: int) -> None:
        try:
            await self._post("/v3/lease/revoke", {"ID": str(lease)}, dict[str, Any])
        except MetaLeaseGone:
            return

    async def versions(self) -> dict[Address, str]:
        """Of the endpoints that answer."""
        found = {}
        for endpoint in self._endpoints:
            channel = _Channel((endpoint,), self._context)
            try:
                response = await channel.call("GET", "/version", b"", lambda: None, once=False)
                found[endpoint] = _parse(response, _Version).etcdserver
            except MetaUnavailable:
                continue
            finally:
                channel.close()
        return found

    # --- watches ---

    @asynccontextmanager
    async def watch(self, prefix: str, revision: int) -> AsyncIterator[AsyncIterator[Changes]]:
        self._watches += 1
        endpoint = self._endpoints[self._watches % len(self._endpoints)]
        try:
            async with asyncio.timeout(TRY_S):
                connection = await HttpConnection.open(endpoint, self._context)
        except OSError as error:
            raise MetaWatchEnded(f"{endpoint}: {_reason(error)}") from None
        try:
            if self._user is not None and self._token is None:
                await self._authenticate()
            yield self._changes(connection, endpoint, prefix, revision)
        finally:
            connection.close()

    async def _changes(
        self, connection: HttpConnection, endpoint: Address, prefix: str, revision: int
    ) -> AsyncIterator[Changes]:
        create = {**_range(prefix), "start_revision": str(revision), "progress_notify": True}
        body = msgspec.json.encode({"create_request": create})
        try:
            async for line in connection.stream("/v3/watch", body, self._token):
                yield self._watched(line, endpoint)
        except (OSError, ResponseError) as error:
            raise MetaWatchEnded(f"the watch at {endpoint} ended: {_reason(error)}") from None
        raise MetaWatchEnded(f"the watch at {endpoint} ended")

    def _watched(self, line: bytes, endpoint: Address) -> Changes:
        try:
            watched = msgspec.json.decode(line, type=_Watch)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise MetaWatchEnded(f"{endpoint} sent what is no message of a watch: {error}") from None
        result = watched.result
        if result is None:
            self._token = None  # it may be the reason
            raise MetaWatchEnded(f"{endpoint} ended the watch: {str(watched.error)[:300]}")
        if result.canceled or int(result.compact_revision):
            raise MetaWatchEnded(f"{endpoint} ended the watch: {result.cancel_reason[:300] or 'compacted'}")
        changes = _decoded(lambda: tuple(event.decoded() for event in result.events))
        return Changes(int(result.header.revision), changes)

    # --- calls ---

    async def _post(
        self, path: str, body: dict[str, Any], kind: type[T], *, once: bool = False, channel: _Channel | None = None
    ) -> T:
        encoded = msgspec.json.encode(body)
        chosen = self._calls if channel is None else channel
        for is_second in (False, True):
            if self._user is not None and self._token is None:
                await self._authenticate()
            response = await chosen.call("POST", path, encoded, lambda: self._token, once=once)
            if response.status == 200:
                return _parse(response, kind)
            code = _failure_code(response)
            if (code == _Code.UNAUTHENTICATED or "auth token" in _failure(response)) and self._user is not None:
                self._token = None  # it expired, or the server began anew; nothing was done
                if not is_second:
                    continue
            raise _error(response, code, once=once)
        raise AssertionError("both tries end by a return or an error")

    async def _authenticate(self) -> None:
        if self._user is None or self._password is None:
            return
        body = msgspec.json.encode({"name": self._user, "password": self._password.reveal()})
        response = await self._calls.call("POST", "/v3/auth/authenticate", body, lambda: None, once=False)
        if response.status != 200:
            raise MetaRefused(f"etcd refuses user {self._user}: {_failure(response)}")
        token = _parse(response, _Token).token
        if not re.fullmatch(r"[\x21-\x7e]{1,4096}", token):
            raise MetaRefused("etcd sent a token that cannot be a header")
        self._token = token


def _error(response: Response, code: int, *, once: bool) -> MetaError:
    text = f"etcd: {_failure(response)}"
    if code == _Code.NOT_FOUND:
        return MetaLeaseGone(text)
    if code in _Code.REFUSALS or code == _Code.UNAUTHENTICATED:
        return MetaRefused(text)
    return MetaOutcomeUnknown(text) if once else MetaUnavailable(text)


def _parse(response: Response, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(response.body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MetaOutcomeUnknown(f"what answered is not etcd: {error}") from None


def _decoded(decode: Callable[[], T]) -> T:
    try:
        return decode()
    except (ValueError, Base64Error) as error:
        raise MetaOutcomeUnknown(f"etcd sent a key or a value that is not base64: {error}") from None
