"""The registry of requests, and conversion between request or response structs and commands.

`@request(code, served_by=...)` declares a struct as a request: its code, its response struct, and which server handles
it. Servers, clients, documentation and tests all read this table (`REQUESTS`); a struct that is not declared cannot be
sent or handled.

If a struct has a `body` attribute, it is the frame's body: raw `bytes`, a text (`str`), or a JSON body.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import force_setattr

from ariane.errors import BodyError, RequestFailed
from ariane.wire.codes import HeaderFlag, RequestCode, ResponseCode, Serialization
from ariane.wire.fields import Request, Response, to_ext
from ariane.wire.frame import FRAME_BYTES_MAX, Command
from ariane.wire.json.body import decode_json, encode_json

R = TypeVar("R", bound=Request[Any])


class ServedBy(Flag):
    NAMESERVER = auto()
    BROKER = auto()
    CLIENT = auto()
    """The broker sends the request to a client, over the connection that the client opened."""


@dataclass(frozen=True, slots=True)
class Declaration:
    code: RequestCode
    request: type[Request[Any]]
    response: type[Response]
    served_by: ServedBy


REQUESTS: dict[int, Declaration] = {}
_BY_STRUCT: dict[type[Request[Any]], Declaration] = {}


def request(code: RequestCode, *, served_by: ServedBy) -> Callable[[type[R]], type[R]]:
    """Decorator that declares a struct as the request `code`; its response is the X of its base `Request[X]`."""

    def declare(struct: type[R]) -> type[R]:
        if code in REQUESTS:
            raise ValueError(f"{code.name} is declared twice: {REQUESTS[code].request.__name__}, {struct.__name__}")
        REQUESTS[code] = _BY_STRUCT[struct] = Declaration(code, struct, _response_of(struct), served_by)
        return struct

    return declare


def declaration_of(struct: type[Request[Any]]) -> Declaration:
    return _BY_STRUCT[struct]


def _response_of(struct: type[Request[Any]]) -> type[Response]:
    for ancestor in struct.__mro__:
        for base in getattr(ancestor, "__orig_bases__", ()):
            if get_origin(base) is Request:
                (response,) = get_args(base)
                if isinstance(response, type) and issubclass(response, Response):
                    return response
    raise TypeError(f"{struct.__name__} must derive from Request[SomeResponse]")


# --- structs to commands and back ---

# Only C++ and Lua clients need the tolerant parser for a request's body, and theirs (heartbeats, locks) are short. A
# longer body could block the event loop for seconds.
_REQUEST_TOLERANT_BYTES_MAX = 256 * 1024
_REQUEST_QUICK_BYTES_MAX = 16 * 1024  # the tolerant parser takes up to 20 ms for it
_REQUEST_JSON_BYTES_MAX = 4 * 1024 * 1024  # ten thousand queues to lock take a half

A = TypeVar("A", bound=Response)
S = TypeVar("S", bound=msgspec.Struct)


def request_command(
    request: Request[Any], *, opaque: int, oneway: bool = False, serialization: Serialization = Serialization.JSON
) -> Command:
    return Command(
        code=declaration_of(type(request)).code,
        opaque=opaque,
        flag=HeaderFlag.ONEWAY if oneway else HeaderFlag.REQUEST,
        ext_texts=to_ext(request) or None,
        body=_body_bytes(getattr(request, "body", b"")),
        serialization=serialization,
    )


def is_slow_to_read(declaration: Declaration, command: Command) -> bool:
    """Whether the body is a long JSON text, which an event loop leaves to a thread."""
    if len(command.body) <= _REQUEST_QUICK_BYTES_MAX:
        return False
    body = _body_field(declaration.request)
    return body is not None and body.kind not in (bytes, str)


def read_request(declaration: Declaration, command: Command) -> Request[Any]:
    if len(command.body) > _REQUEST_JSON_BYTES_MAX and is_slow_to_read(declaration, command):
        raise BodyError(
            f"a JSON body of {len(command.body)} bytes is too long for a request: divide it into parts of at most "
            f"{_REQUEST_JSON_BYTES_MAX} bytes"
        )
    return _with_body(command.fields(declaration.request), command.body, _REQUEST_TOLERANT_BYTES_MAX)


def response_command(request: Command, response: Response, body: bytes | None = None) -> Command:
    """The response to `request`, in its serialisation. `body` replaces the response's own: encoded once, sent often."""
    ext = to_ext(response)
    return Command(
        code=response.code,
        opaque=request.opaque,
        flag=HeaderFlag.RESPONSE,
        remark=response.remark,
        # A response with a struct of its own always has extFields, at least {}: Java dereferences it unchecked.
        ext_texts=ext if ext or type(response) is not Response else None,
        body=_body_bytes(getattr(response, "body", b"")) if body is None else body,
        serialization=request.serialization,
    )


def read_response(request: Request[A], command: Command) -> A:
    """The response to `request`; RequestFailed when its code is not one of the response's `accepts`."""
    return read_response_to(type(request), command)  # type: ignore[no-any-return]


def read_response_to(kind: type[Request[Any]], command: Command) -> Any:
    """As `read_response`, by the type of the request."""
    declaration = declaration_of(kind)
    if command.code not in declaration.response.accepts:
        raise RequestFailed(_named(command.code), f"{command.remark or ''} [{declaration.code.name}]".strip())
    response = _with_body(command.fields(declaration.response), command.body, FRAME_BYTES_MAX)
    force_setattr(response, "code", command.code)
    force_setattr(response, "remark", command.remark)
    return response


def _named(code: int) -> int:
    try:
        return ResponseCode(code)
    except ValueError:  # a code of a later release: report the number
        return code


def _with_body(value: S, data: bytes, tolerant_bytes_max: int) -> S:
    body = _body_field(type(value))
    if body is not None:
        force_setattr(value, "body", _read_body(body.kind, data, tolerant_bytes_max) if data else body.default())
    return value


def _read_body(kind: Any, data: bytes, tolerant_bytes_max: int) -> object:
    if kind is bytes:
        return data
    if kind is not str:
        return decode_json(data, kind, tolerant_bytes_max=tolerant_bytes_max)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"the body must be UTF-8 text, but byte {error.start} is not") from error


def _body_bytes(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    return b"" if body is None else encode_json(body)


@dataclass(frozen=True, slots=True)
class _BodyField:
    kind: Any
    default: Callable[[], object]


@cache
def _body_field(struct: type[msgspec.Struct]) -> _BodyField | None:
    """The declared type of `body`, without its `| None`, and its default; None when the struct has no body."""
    for field in msgspec.structs.fields(struct):
        if field.name == "body":
            kinds = [kind for kind in get_args(field.type) if kind is not NoneType]
            is_optional = isinstance(field.type, UnionType) and len(kinds) == 1
            factory = field.default_factory
            return _BodyField(
                kinds[0] if is_optional else field.type,
                partial(_same, field.default) if factory is msgspec.NODEFAULT else factory,
            )
    return None


def _same(value: object) -> object:
    return value
