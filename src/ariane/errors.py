"""The exception hierarchy of Ariane.

    ArianeError                     retriable  exit  what happened
    ├── SettingsError                   no       2   a setting is unknown, malformed or out of range
    ├── WireError                       no       4   the bytes violate the protocol
    │   ├── FrameError                               invalid frame or header length: the stream is out of sync
    │   ├── HeaderError                              the header's bytes, its depth, its number or size of fields
    │   ├── FieldError                               a header field is missing or of the wrong type
    │   ├── BodyError                                the body of a request or a response
    │   └── RecordError                              a stored message, a batch item, a property string, an id
    ├── TransportError                  yes      3   the network
    │   ├── ConnectFailed                            connection refused or timed out, or TLS handshake failed
    │   ├── ConnectionLost                           the connection closed before the response arrived
    │   ├── CallTimeout                              no response in time: the outcome is unknown
    │   ├── TooManyInFlight                          the limit of pending calls on this connection is reached
    │   └── ListenFailed                no           a server cannot open its port
    ├── MetaError                       yes      3   the metadata store of a group (etcd)
    │   ├── MetaUnavailable                          no endpoint took the call: nothing was done
    │   ├── MetaOutcomeUnknown                       no answer: what was asked for may have been done, or will be
    │   ├── MetaRefused                 no       4   the call can never succeed: credentials, a malformed request
    │   ├── MetaLeaseGone               no           the lease has expired, or was revoked
    │   ├── MetaWatchEnded                           a watch ended or fell behind: read again
    │   └── MetaRecordInvalid           no       4   a value that is not what its key promises
    ├── StoreError                      no       1   files
    │   ├── StoreInUse                               another process holds the store's lock
    │   ├── StoreMismatch                            the files do not fit the settings, or each other
    │   ├── StoreCorrupt                             bytes that were durable have changed
    │   ├── StoreFull                   yes          disk full: writes fail until there is space
    │   ├── StoreReadOnly                            a sync failed: what is on disk is unknown, so writes fail
    │   ├── WritesSuspended             yes          the role of this broker allows no writes now: nothing is stored
    │   ├── OutcomeUnknown              yes          stored here, and not confirmed before the role of the broker ended
    │   └── MessageRefused                           too large, or a field that the record cannot hold
    ├── ExpressionError(reason, at)     no       2   a filter expression has a syntax or type error
    ├── ClientError                     no       1   a producer or a consumer
    │   ├── NoRoute                     yes      3   no nameserver knows the topic, or no broker serves it
    │   ├── MessageRejected             no       2   this message can never be sent: its topic, its size, its properties
    │   ├── SendFailed                  yes      3   every attempt failed; the message may still have been stored
    │   ├── NoReply                     yes      1   request-reply: no reply in time
    │   └── ClientClosed                no       1   used before it started, after it closed, or in a forked child
    └── RequestFailed(code, remark)     by code  4   the peer returned an error; a handler raises it as its response

`retriable` says whether the same call may succeed later or elsewhere, so that retry loops never list types.
`exit_status` is the exit status of the command line; the table EXIT_STATUSES says what each one means.
"""

from typing import ClassVar, Final

EXIT_STATUSES: Final = {
    0: "done",
    1: "the result is negative: not found, not clean, not equal, not done, a limit exceeded",
    2: "wrong usage: an argument, an option or a setting",
    3: "a server is unreachable, or a part of the result is missing for that reason",
    4: "a server refused the request, with its code and remark",
    70: "a bug in Ariane: run it again with `--debug` and report it",
    130: "Ctrl-C",
}
"""Meaning of each exit status of `ariane`; docs/cli.md and docs/errors.md show this table."""


class ArianeError(Exception):
    """Base class of all errors that Ariane raises."""

    retriable: bool = False
    exit_status: ClassVar[int] = 1


class SettingsError(ArianeError):
    exit_status = 2


class WireError(ArianeError):
    exit_status = 4


class FrameError(WireError):
    pass


class HeaderError(WireError):
    pass


class FieldError(WireError):
    pass


class BodyError(WireError):
    pass


class RecordError(WireError):
    pass


class TransportError(ArianeError):
    retriable = True
    exit_status = 3


class ConnectFailed(TransportError):
    pass


class ConnectionLost(TransportError):
    pass


class CallTimeout(TransportError):
    pass


class TooManyInFlight(TransportError):
    pass


class ListenFailed(TransportError):
    retriable = False


class MetaError(ArianeError):
    retriable = True
    exit_status = 3


class MetaUnavailable(MetaError):
    pass


class MetaOutcomeUnknown(MetaError):
    pass


class MetaRefused(MetaError):
    retriable = False
    exit_status = 4


class MetaLeaseGone(MetaError):
    retriable = False


class MetaWatchEnded(MetaError):
    pass


class MetaRecordInvalid(MetaError):
    retriable = False
    exit_status = 4


class StoreError(ArianeError):
    pass


class StoreInUse(StoreError):
    pass


class StoreMismatch(StoreError):
    pass


class StoreCorrupt(StoreError):
    pass


class StoreFull(StoreError):
    retriable = True


class StoreReadOnly(StoreError):
    pass


class WritesSuspended(StoreError):
    retriable = True


class OutcomeUnknown(StoreError):
    retriable = True


class MessageRefused(StoreError):
    pass


class ExpressionError(ArianeError):
    exit_status = 2

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at position {position}")
        self.reason = reason
        self.position = position


class ClientError(ArianeError):
    pass


class NoRoute(ClientError):
    retriable = True
    exit_status = 3


class MessageRejected(ClientError):
    exit_status = 2


class SendFailed(ClientError):
    retriable = True
    exit_status = 3


class NoReply(ClientError):
    retriable = True


class ClientClosed(ClientError):
    pass


# SYSTEM_BUSY, SERVICE_NOT_AVAILABLE and FLOW_CONTROL: the peer asks to retry later. Plain numbers, because this module
# must not import the table of codes (wire/codes.py), which is in a higher layer.
_RETRIABLE_CODES = frozenset({2, 14, 215})


class RequestFailed(ArianeError):
    """A response code other than the expected ones, with the peer's remark."""

    exit_status = 4

    def __init__(self, code: int, remark: str = "") -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark
        self.retriable = code in _RETRIABLE_CODES

    def __str__(self) -> str:
        return f"{getattr(self.code, 'name', self.code)}: {self.remark}" if self.remark else f"code {self.code}"


class SignatureRequired(RequestFailed):
    """A refusal that a signature of version 2 can avoid: the response has the challenge that it must contain."""

    def __init__(self, code: int, remark: str, challenge: str, time_ms: int) -> None:
        super().__init__(code, remark)
        self.challenge = challenge
        self.time_ms = time_ms


def sole_cause(error: Exception) -> Exception:
    """Unwraps the exception groups of task groups: they wrap even a single error, and nested ones wrap it twice."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
