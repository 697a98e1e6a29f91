"""Parser and encoder of fastjson's JSON dialect, which RocketMQ uses.

Real peers send what a strict parser rejects:

    {0:"10.0.0.1:10911"}                                    integer keys without quotes
    {{"brokerName":"b","queueId":0,"topic":"T"}:12}         objects as keys
    {"a":{"$ref":"$.b"}}                                    references
    {code:0,'remark':'x',,"flag":1,}                        bare names, single quotes, spare commas

The input is untrusted, so time and memory stay proportional to the text: no recursion, one regular expression that
never backtracks, and a limit wherever a short text could cost much.

References. fastjson writes an object in full the first time and a path from the root every later time:

    {"table":{"a":{"perm":6},"b":{"$ref":"$.table.a"}}}        means     {"table":{"a":{"perm":6},"b":{"perm":6}}}

    $            the root                   .name    a member; newer releases escape special characters by backslashes
    [2]          an item of a list, or the member with the integer key 2

The full object always comes first, so a path is resolved when it is read: its target is either complete or still open,
and an open target, which would be a cycle, is refused. So nothing can loop. The remaining danger is expansion: a few
dozen references to references can stand for more objects than memory holds, hence the limits in `Expansion`.

Encoding: compact, members in alphabetical order, None omitted. Two forms, because clients disagree:

    value                       the dialect                             standard=True
    {0: "10.0.0.1:10911"}       {0:"10.0.0.1:10911"}                    {"0":"10.0.0.1:10911"}
    {MessageQueue(...): 12}     {{"brokerName":"b",...}:12}             {"{\\"brokerName\\":\\"b\\",...}":12}
    "é"                         UTF-8                                   \\u00e9
    order of a dict             as it is                                by key

Old Go clients split the dialect's text with string operations, so it must not contain white space. The dialect is what
Java servers send; the standard form is what a JSON library needs.
"""

import math
import re
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final, NoReturn, TypeAlias

import msgspec

from ariane.errors import BodyError, WireError

# --- scalars: each function raises ValueError with the reason, the parser adds the position ---

Scalar: TypeAlias = str | int | float | bool | None

NUMBER_LENGTH_MAX: Final = 128  # an int64 has 20 characters; turning digits into a number is quadratic in their count
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED: Final = dict(zip("\"\\/'btnvfFr01234567", "\"\\/'\b\t\n\v\f\f\r\0\1\2\3\4\5\6\7", strict=True))
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORDS: Final = {"true": True, "false": False, "null": None}


def string_of(raw: str) -> str:
    """`raw` with its escapes resolved, and always encodable as UTF-8.

    A lone surrogate becomes U+FFFD, much as Java's encoder would replace it: rejecting a whole heartbeat for one
    invalid character would be too strict, and keeping the surrogate would fail later, where the text is first encoded.
    """
    if "\\" not in raw:
        return raw
    text = _ESCAPE.sub(_unescaped, raw)
    if _SURROGATE.search(text):
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    if code:
        return chr(int(code, 16))
    if escape[3] not in _ESCAPED:
        raise ValueError(f"unknown escape \\{escape[3]}")
    return _ESCAPED[escape[3]]


def number_of(raw: str) -> int | float:
    if len(raw) > NUMBER_LENGTH_MAX:
        raise ValueError(f"a number of {len(raw)} characters, at most {NUMBER_LENGTH_MAX} are allowed")
    try:
        return int(raw)
    except ValueError:
        number = float(raw)
    if math.isinf(number):
        raise ValueError(f"the number {raw} is out of range")
    return number


def word_of(raw: str) -> bool | None:
    if raw not in _WORDS:
        raise ValueError(f"the bare word {raw[:40]!r} is not a value")
    return _WORDS[raw]


def number_key_of(raw: str) -> str | int:
    """A number as a key: an integer stays an int, a fraction is kept as text."""
    if not raw.lstrip("-").isdecimal():
        return raw
    number = int(number_of(raw))
    if not INT64_MIN <= number <= INT64_MAX:
        raise ValueError(f"the key {raw} does not fit in 64 bits")
    return number


VALUES: Final[dict[str, Callable[[str], Scalar]]] = {
    "double": string_of,
    "single": string_of,
    "number": number_of,
    "word": word_of,
}
"""Parser of a token where a value is expected, by kind of token."""

KEYS: Final[dict[str, Callable[[str], str | int]]] = {
    "double": string_of,
    "single": string_of,
    "number": number_key_of,
    "word": str,
}
"""Parser of a token where a key is expected, by kind of token."""


# --- references ---

REFERENCE: Final = "$ref"
EXPANSION_MAX: Final = 1_000_000  # values that all references of one text may stand for; a big cluster needs thousands

_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)++)|\[([0-9]{1,9})\]", re.DOTALL)
_ESCAPED_CHARACTER = re.compile(r"\\(.)", re.DOTALL)


def path_of(value: object) -> str | None:
    """The path in `value` when it is a reference, else None."""
    if isinstance(value, dict) and len(value) == 1:
        path = value.get(REFERENCE)
        return path if isinstance(path, str) else None
    return None


def resolve(root: object, path: str) -> object:
    """The target of `path` under `root`; LookupError when there is none."""
    if not path.startswith("$"):
        raise LookupError(path)
    value, at = root, 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise LookupError(path)
        value, at = _child(value, step[1], step[2]), step.end()
    return value


def _child(value: object, name: str | None, index: str | None) -> object:
    if isinstance(value, dict):
        if name is not None:
            return value[_ESCAPED_CHARACTER.sub(r"\1", name)]
        return value[int(index)] if index and int(index) in value else value[index]
    if isinstance(value, list) and index is not None:
        return value[int(index)]
    raise LookupError(name or index)


class Expansion:
    """Counts the expanded size of all references of one text, so that a short text cannot expand to a huge value."""

    __slots__ = ("depth_max", "left")

    def __init__(self, depth_max: int) -> None:
        self.depth_max = depth_max
        self.left = EXPANSION_MAX

    def fits(self, target: object, depth: int) -> bool:
        """Whether `target` may be inserted at `depth`; its size is subtracted from the budget of this text."""
        todo = [(target, depth)]
        while todo:
            value, depth = todo.pop()
            if not isinstance(value, dict | list):
                continue
            self.left -= 1 + len(value)
            if self.left < 0 or depth > self.depth_max:
                return False
            members = value.values() if isinstance(value, dict) else value
            todo.extend((member, depth + 1) for member in members)
        return True


# --- encoder ---

_Quote = Callable[[str], str]


def emit(value: object, *, standard: bool = False) -> bytes:
    """The JSON text of `value`: builtins, enums and msgspec Structs, in any nesting.

    A plain Enum is written by name, a StrEnum as its text, an IntEnum or IntFlag as its number.
    """
    text = _text(value, encode_basestring_ascii if standard else encode_basestring)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BodyError(f"a lone surrogate cannot be encoded as UTF-8: {error.object[error.start]!r}") from None


def _text(value: object, quote: _Quote) -> str:
    if isinstance(value, msgspec.Struct):  # first: the rows of large tables
        return _struct_text(value, quote)
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case int():
            return int.__repr__(value)
        case float():
            return _float_text(value)
        case Enum():
            return quote(value.name)
        case dict():
            return _dict_text(value, quote)
        case list() | tuple():
            return _array_text(value, quote)
        case set() | frozenset():
            return _array_text(_in_order(value), quote)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        raise BodyError(f"JSON has no number {value}")
    return float.__repr__(value)


def _array_text(values: Iterable[object], quote: _Quote) -> str:
    return f"[{','.join([_text(value, quote) for value in values])}]"


def _in_order(values: set[object] | frozenset[object]) -> list[object]:
    """Sorted, so that the same set gives the same text on every run."""
    try:
        return sorted(values)  # type: ignore[type-var]
    except TypeError:
        return sorted(values, key=lambda value: _text(value, encode_basestring))


def _struct_text(value: msgspec.Struct, quote: _Quote) -> str:
    if quote is encode_basestring and _is_flat(type(value)):
        try:
            return _FLAT.encode(value).decode()
        except (UnicodeError, OverflowError, TypeError):
            pass  # a lone surrogate or a value that is not of the declared type: as any other struct
    members = [(name, getattr(value, attribute)) for name, attribute in _members(type(value))]
    return f"{{{','.join([f'{name}:{_text(member, quote)}' for name, member in members if _present(member)])}}}"


_FLAT: Final = msgspec.json.Encoder(order="sorted")


@cache
def _is_flat(kind: type[msgspec.Struct]) -> bool:
    """Whether all its members are texts, integers and booleans: msgspec then writes the same text, ten times faster.

    Tables of a hundred thousand topics or groups consist of such structs.
    """
    return kind.__struct_config__.tag is None and all(
        isinstance(field.type, type) and issubclass(field.type, str | int) for field in msgspec.structs.fields(kind)
    )


@cache
def _members(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Quoted wire names with their attributes, in wire order."""
    pairs = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return [(encode_basestring_ascii(name), attribute) for name, attribute in sorted(pairs)]


def _present(member: object) -> bool:
    return member is not None and member is not msgspec.UNSET


def _dict_text(value: dict[object, object], quote: _Quote) -> str:
    if quote is encode_basestring and set(map(type, value)) | set(map(type, value.values())) == _INTEGERS:
        return f"{{{','.join([f'{key}:{member}' for key, member in value.items()])}}}"  # offsets by queue: many, short
    members = [(_key_text(key, quote), member) for key, member in value.items() if _present(member)]
    if quote is encode_basestring_ascii:
        members.sort(key=lambda pair: pair[0])
    return f"{{{','.join([f'{key}:{_text(member, quote)}' for key, member in members])}}}"


_INTEGERS: Final = {int}


def _key_text(key: object, quote: _Quote) -> str:
    if isinstance(key, str):
        return quote(key)
    if isinstance(key, tuple):
        text = _dict_text(dict(sorted(key)), quote)
    elif isinstance(key, msgspec.Struct) or (isinstance(key, int) and not isinstance(key, bool)):
        text = _text(key, quote)
    elif isinstance(key, Enum):
        return quote(key.name)
    else:
        raise TypeError(f"no JSON key for {type(key).__name__}")
    return quote(text) if quote is encode_basestring_ascii else text


# --- parser ---

ObjectKey: TypeAlias = tuple[tuple[str, Scalar], ...]
"""An object as a key: its members as pairs, sorted by name, so that `dict(key)` is the object."""

Key: TypeAlias = str | int | ObjectKey

DEPTH_MAX: Final = 32  # the deepest body of RocketMQ nests seven levels
SIZE_MAX: Final = 16 * 1024 * 1024  # no frame carries more
HEADER_VALUES_MAX: Final = 1024
"""Keys and values of a frame's header, which has at most 256 fields: it is parsed before the peer is authenticated."""
_KEY_MEMBERS_MAX: Final = 16  # a message queue has 3; the whole key is hashed at each use
# Queues and brokers have integer keys. A peer can choose integers that collide in a Python dict, because the hash of an
# integer is the integer (strings are hashed with a secret): the limit keeps such an object cheap.
_INTEGER_KEYS_MAX: Final = 8192

_BLANKS: Final = " \t\r\n\f\b"
_TOKEN = re.compile(
    r"""(?P<gap>[ \t\r\n\f\b,]*+)
        (?: "(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)"
          | '(?P<single>[^'\\]*+(?:\\.[^'\\]*+)*+)'
          | (?P<number>-?[0-9]++(?:\.[0-9]*+)?+(?:[eE][+-]?[0-9]++)?+)
          | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*+)
          | (?P<opening>[{\[])
          | (?P<closing>[}\]]) )""",
    re.VERBOSE | re.DOTALL,
)
_COLON = re.compile(r"[ \t\r\n\f\b]*+:")
_MARKS: Final = b"{}[]\"'"
_NO_MARKS: Final = bytes(byte for byte in range(256) if byte not in _MARKS)
_ONE_KIND_OF_BRACKET: Final = bytes.maketrans(b"{}", b"[]")
_STRING = re.compile(rb""""[^"]*+"?+|'[^']*+'?+""")


def check_depth(data: bytes, limit: int, error: type[WireError] = BodyError) -> None:
    """Rejects text that nests deeper than `limit`, before it reaches a recursive decoder.

    Counting brackets is nearly free and decides most texts; only a text with many brackets is analysed.
    """
    if data.count(b"{") + data.count(b"[") <= limit:
        return
    # Escapes occur only in strings; an empty string and two adjacent strings both appear as two consecutive quotes.
    escaped = data.replace(rb"\\", b"").replace(rb"\"", b"").replace(rb"\'", b"")  # 20 times as fast as an expression
    marks = escaped.translate(_ONE_KIND_OF_BRACKET, _NO_MARKS).replace(b'""', b"")
    brackets = _STRING.sub(b"", marks)
    for _ in range(limit):
        if b"[]" not in brackets or b"[" * (limit + 1) in brackets:
            break
        brackets = brackets.replace(b"[]", b"")  # the innermost level
    if brackets:
        raise error(f"the JSON nests deeper than {limit} levels, or its brackets do not match")


def parse(
    data: bytes | str, *, depth_max: int = DEPTH_MAX, values_max: int = SIZE_MAX, size_max: int = SIZE_MAX
) -> object:
    """Parses fastjson's dialect to builtins: dict, list, str, int, float, bool, None. BodyError beyond `values_max`.

    A key is an int when it is an unquoted integer, an ObjectKey when it is an object, otherwise a str; of two equal
    keys the last wins. A reference and its target are the same Python object.
    """
    if len(data) > size_max:
        raise BodyError(f"the JSON text has {len(data)} bytes, at most {size_max} are allowed")
    try:
        text = data.decode() if isinstance(data, bytes) else data.encode().decode()
    except UnicodeError as error:
        raise BodyError(f"the JSON text is not valid UTF-8: {error.reason}") from None  # type: ignore[attr-defined]
    return _Parser(text, depth_max).run(values_max)


class _Open:
    """A container that is not closed yet."""

    __slots__ = ("closing", "integer_keys", "is_key", "items", "key", "slot", "wants_key", "wants_value")

    def __init__(self, items: dict[Key, object] | list[object], slot: Key, *, is_key: bool) -> None:
        self.items = items
        self.slot = slot  # its key or index in its parent, so that a reference can be replaced by its target
        self.is_key = is_key
        self.closing = "}" if isinstance(items, dict) else "]"
        self.wants_key = isinstance(items, dict)
        self.wants_value = False
        self.key: Key = ""
        self.integer_keys = 0

    def add(self, value: object) -> Key:
        if isinstance(self.items, list):
            self.items.append(value)
            return len(self.items) - 1
        self.items[self.key] = value
        self.wants_key, self.wants_value = True, False
        return self.key


class _Parser:
    """Parses one text token by token, with an explicit stack of open containers instead of recursion."""

    def __init__(self, text: str, depth_max: int) -> None:
        self.text = text
        self.start = self.end = 0  # of the current token
        self.depth_max = depth_max
        self.result: list[object] = []
        self.open = [_Open(self.result, 0, is_key=False)]
        self.open[0].closing, self.open[0].wants_value = "", True
        self.expansion = Expansion(depth_max)

    def run(self, values_max: int) -> object:
        self.step()
        for _ in range(2 * values_max):  # a step is a key, a value, or the end of a container
            if len(self.open) == 1:
                break
            self.step()
        else:
            self.fail(f"there are more than {values_max} keys and values")
        if self.text[self.end :].strip(_BLANKS):
            self.fail("there is text after the value")
        return self.result[0]

    def step(self) -> None:
        self.start = self.end
        token = _TOKEN.match(self.text, self.start)
        if token is None:
            self.fail("no value" if self.text[self.start :].strip(_BLANKS) else "the text ends too early")
        self.end = token.end()
        top, kind = self.open[-1], token.lastgroup
        if kind == "closing":
            self.close(top, token[kind])
            return
        comma = "," in token["gap"]
        if comma if top.wants_value else top.items and not comma:
            self.fail("a comma where a value was expected" if comma else "a comma is missing")
        if kind == "opening":
            self.descend(top, token[kind])
        else:
            self.take(top, str(kind), token[str(kind)])

    def take(self, top: _Open, kind: str, raw: str) -> None:
        try:
            if top.wants_key:
                self.await_value(top, KEYS[kind](raw))
            else:
                top.add(VALUES[kind](raw))
        except ValueError as error:
            self.fail(str(error))

    def descend(self, top: _Open, bracket: str) -> None:
        if len(self.open) > self.depth_max:
            self.fail(f"nested deeper than {self.depth_max} levels")
        is_key = top.wants_key
        if is_key and bracket == "[":
            self.fail("an array cannot be a key")
        items: dict[Key, object] | list[object] = {} if bracket == "{" else []
        # A container is added to its parent when it opens, so that a reference's path can pass through open containers.
        self.open.append(_Open(items, 0 if is_key else top.add(items), is_key=is_key))

    def close(self, top: _Open, bracket: str) -> None:
        if bracket != top.closing or top.wants_value:
            self.fail(f"unexpected {bracket}")
        path = path_of(top.items)
        value = top.items if path is None else self.target(path)
        self.open.pop()
        parent = self.open[-1]
        if top.is_key:
            self.await_value(parent, self.object_key(value))
        elif path is not None:
            parent.items[top.slot] = value  # type: ignore[index]

    def await_value(self, top: _Open, key: Key) -> None:
        colon = _COLON.match(self.text, self.end)
        if colon is None:
            self.fail("a key without a colon")
        if isinstance(key, int):
            top.integer_keys += 1
            if top.integer_keys > _INTEGER_KEYS_MAX:
                self.fail(f"an object with more than {_INTEGER_KEYS_MAX} integer keys")
        top.key, top.wants_key, top.wants_value = key, False, True
        self.end = colon.end()

    def object_key(self, value: object) -> ObjectKey:
        if not isinstance(value, dict) or len(value) > _KEY_MEMBERS_MAX:
            self.fail(f"an object key must have at most {_KEY_MEMBERS_MAX} members")
        # The hash of "" is not secret, so it would let a peer choose keys that collide.
        if not all(isinstance(name, str) and name for name in value):
            self.fail("the members of an object key must have names")
        if any(isinstance(member, dict | list) for member in value.values()):
            self.fail("the members of an object key must be plain values")
        return tuple(sorted(value.items()))

    def target(self, path: str) -> object:
        try:
            target = resolve(self.result[0], path)
        except LookupError:
            self.fail(f"the reference {path[:80]!r} has no target before it")
        if any(target is container.items for container in self.open):
            self.fail(f"the reference {path[:80]!r} contains itself")
        if not self.expansion.fits(target, len(self.open) - 1):
            self.fail("the references expand to too many values, or nest too deep")
        return target

    def fail(self, reason: str) -> NoReturn:
        near = self.text[self.start : self.start + 20]
        raise BodyError(f"not JSON: {reason}, at character {self.start}, near {near!r}")
