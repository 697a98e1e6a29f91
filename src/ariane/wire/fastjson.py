"""JSON as RocketMQ speaks it: the dialect of Java's fastjson, read here and written by fastjson_writer.py.

What a strict parser refuses and real peers send:

    {0:"10.0.0.1:10911"}                                    integer keys without quotes
    {{"brokerName":"b","queueId":0,"topic":"T"}:12}         objects as keys
    {"a":{"$ref":"$.b"}}                                    references (fastjson_refs.py)
    {code:0,'remark':'x',,"flag":1,}                        bare names, single quotes, spare commas

Bytes come from strangers, so time and memory stay in proportion to the text: no recursion, one regular expression that
never backtracks, and a limit wherever a short text could cost much.
"""

import re
from typing import Final, NoReturn, TypeAlias

from ariane.errors import BodyError, WireError
from ariane.wire.fastjson_literals import KEYS, VALUES, Scalar
from ariane.wire.fastjson_refs import Expansion, follow, path_of
from ariane.wire.fastjson_writer import emit

__all__ = ["DEPTH_MAX", "SIZE_MAX", "Key", "ObjectKey", "check_depth", "emit", "parse"]

ObjectKey: TypeAlias = tuple[tuple[str, Scalar], ...]
"""An object that is a key: its members as pairs, sorted by name, so that `dict(key)` is the object."""

Key: TypeAlias = str | int | ObjectKey

DEPTH_MAX: Final = 32  # the deepest body of RocketMQ nests seven levels
SIZE_MAX: Final = 16 * 1024 * 1024  # no frame carries more
_KEY_MEMBERS_MAX: Final = 16  # a message queue has 3; the whole key is hashed at each use
# Queues and brokers have integer keys. Anyone can choose integers that collide in a Python dict, since the hash of an
# integer is the integer (text is hashed with a secret): the limit keeps such an object cheap.
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
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_MARKS: Final = b"{}[]\"'"
_NO_MARKS: Final = bytes(byte for byte in range(256) if byte not in _MARKS)
_ONE_KIND_OF_BRACKET: Final = bytes.maketrans(b"{}", b"[]")
_STRING = re.compile(rb""""[^"]*+"?+|'[^']*+'?+""")


def check_depth(data: bytes, limit: int, error: type[WireError] = BodyError) -> None:
    """Refuse text that nests deeper than `limit`, before a decoder that recurses sees it.

    Counting brackets costs next to nothing and settles most texts; only one with many brackets is looked at closely.
    """
    if data.count(b"{") + data.count(b"[") <= limit:
        return
    # Escapes stand only in strings; an empty string and two strings side by side both show as two quotes in a row.
    marks = _ESCAPE.sub(b"", data).translate(_ONE_KIND_OF_BRACKET, _NO_MARKS).replace(b'""', b"")
    brackets = _STRING.sub(b"", marks)
    for _ in range(limit):
        if b"[]" not in brackets:
            break
        brackets = brackets.replace(b"[]", b"")  # the innermost level
    if brackets:
        raise error(f"the JSON nests deeper than {limit} levels, or its brackets do not match")


def parse(data: bytes | str, *, depth_max: int = DEPTH_MAX) -> object:
    """The value of a fastjson text, in builtins: dict, list, str, int, float, bool, None.

    A key is an int when it stood without quotes, an ObjectKey when it is an object, otherwise a str; of two equal keys
    the last wins. What the text shares by reference is one shared object here.
    """
    if len(data) > SIZE_MAX:
        raise BodyError(f"the JSON text has {len(data)} bytes, at most {SIZE_MAX} are read")
    try:
        text = data.decode() if isinstance(data, bytes) else data.encode().decode()
    except UnicodeError as error:
        raise BodyError(f"the JSON text is not valid UTF-8: {error.reason}") from None  # type: ignore[attr-defined]
    return _Parser(text, depth_max).run()


class _Open:
    """A container whose end has not been read yet."""

    __slots__ = ("closing", "integer_keys", "is_key", "items", "key", "slot", "wants_key", "wants_value")

    def __init__(self, items: dict[Key, object] | list[object], slot: Key, *, is_key: bool) -> None:
        self.items = items
        self.slot = slot  # where it stands in its parent, so that a reference can make way for its target
        self.is_key = is_key
        self.closing = "}" if isinstance(items, dict) else "]"
        self.wants_key = isinstance(items, dict)
        self.wants_value = False
        self.key: Key = ""
        self.integer_keys = 0

    def place(self, value: object) -> Key:
        if isinstance(self.items, list):
            self.items.append(value)
            return len(self.items) - 1
        self.items[self.key] = value
        self.wants_key, self.wants_value = True, False
        return self.key


class _Parser:
    """Reads one text token by token, with the open containers on a list of its own instead of Python's stack."""

    def __init__(self, text: str, depth_max: int) -> None:
        self.text = text
        self.start = self.end = 0  # of the token at hand
        self.depth_max = depth_max
        self.result: list[object] = []
        self.open = [_Open(self.result, 0, is_key=False)]
        self.open[0].closing, self.open[0].wants_value = "", True
        self.expansion = Expansion(depth_max)

    def run(self) -> object:
        self.step()
        while len(self.open) > 1:
            self.step()
        if self.text[self.end :].strip(_BLANKS):
            self.fail("the text goes on after its one value")
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
                top.place(VALUES[kind](raw))
        except ValueError as error:
            self.fail(str(error))

    def descend(self, top: _Open, bracket: str) -> None:
        if len(self.open) > self.depth_max:
            self.fail(f"nested deeper than {self.depth_max} levels")
        is_key = top.wants_key
        if is_key and bracket == "[":
            self.fail("an array cannot be a key")
        items: dict[Key, object] | list[object] = {} if bracket == "{" else []
        # A value joins its parent at once, so that the path of a reference can pass through what is still open.
        self.open.append(_Open(items, 0 if is_key else top.place(items), is_key=is_key))

    def close(self, top: _Open, bracket: str) -> None:
        if bracket != top.closing or top.wants_value:
            self.fail(f"{bracket} does not belong here")
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
            self.fail(f"a key is an object of at most {_KEY_MEMBERS_MAX} members")
        # The hash of "" is known to all, so it would let a peer choose keys that collide.
        if not all(isinstance(name, str) and name for name in value):
            self.fail("the members of a key have names")
        if any(isinstance(member, dict | list) for member in value.values()):
            self.fail("the members of a key are plain values")
        return tuple(sorted(value.items()))

    def target(self, path: str) -> object:
        try:
            target = follow(self.result[0], path)
        except LookupError:
            self.fail(f"the reference {path[:80]!r} names nothing that was written before it")
        if any(target is container.items for container in self.open):
            self.fail(f"the reference {path[:80]!r} contains itself")
        if not self.expansion.fits(target, len(self.open) - 1):
            self.fail("the references stand for too many values, or nest too deep")
        return target

    def fail(self, reason: str) -> NoReturn:
        near = self.text[self.start : self.start + 20]
        raise BodyError(f"not JSON: {reason}, at character {self.start}, near {near!r}")
