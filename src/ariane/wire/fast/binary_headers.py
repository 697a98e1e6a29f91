"""The fast decoder of binary headers, by layouts that it learns from what clients send.

A client's headers differ in few values. So the first one is read field by field, by the general decoder, and leaves two
things behind: its layout, which is one struct that cuts such a header into values that vary and the bytes between them,
and its fields, which are found again by those bytes:

    | code 5   | opaque 4 | flag, remark 8 | bytes of fields 4 | a=shop b=orders c=TBW102 d=4 e= | 3   | f=0 g= | 17.. |
      constant   varies     constant         varies              constant: names, lengths, values  var.  const.   var.

The next header with equal constants has the same fields but for what varies: one call of `unpack_from` and two look-ups
find them. That takes 1.4 us for a send, where field by field takes 8. No constant is interpreted: bytes that are equal
mean the same.

As for JSON headers (json_headers.py), anything uncommon ends the run, and there are no errors here. What is learned is
bounded: at a limit all is forgotten, and a peer that always sends something new has each header read field by field.
"""

import struct
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from ariane.errors import HeaderError
from ariane.model.ids import QueueOffset
from ariane.wire.codes import RequestCode, Serialization
from ariane.wire.fast.fields import FrameCheck, PullFields, SendFields
from ariane.wire.fields import Request
from ariane.wire.frame import SURELY_WITHIN_LIMITS, FrameLimits, decode_binary_header
from ariane.wire.signature import SIGNATURE, SIGNATURE_V2

F = TypeVar("F", bound=Request[Any])

_KIND = Serialization.BINARY << 24
_unpack_prefix = struct.Struct(">iI").unpack_from
_FIXED_BYTES = 21
"""Up to the first field, in a header without a remark."""
_OPAQUE = slice(5, 9)
_FIELDS_LENGTH = slice(17, 21)

LAYOUTS_MAX = 1024
KNOWN_MAX = 10_000
"""Headers, of which each takes up to 3 KiB: it has up to 1.5, and its fields are there as texts, too."""
_LAYOUTS_OF_A_KEY_MAX = 8

_SIGNATURES = frozenset({SIGNATURE, SIGNATURE_V2})
"""A header with one of these is like no other."""

_NUMBERS = {b"%d" % number: number for number in range(256)}
"""A look-up takes a third of the time that a check for digits and `int` take."""


def binary_header_texts(header: bytes) -> tuple[int, dict[str, str]] | None:
    """Code and fields of a header, as its signature covers them; None when it cannot be read."""
    try:
        command = decode_binary_header(header)
    except HeaderError:
        return None
    return command.code, command.ext


# --- what is learned --------------------------------------------------------------------------------------------------


class _Layout(Generic[F]):
    """A way to cut headers, and the fields of those that were cut so."""

    __slots__ = ("form", "known", "size", "tail", "unpack", "variables")

    def __init__(self, form: str, variables: Callable[[tuple[Any, ...]], tuple[Any, ...]], tail: int) -> None:
        cut = struct.Struct(form)
        self.form = form
        self.unpack: Callable[[bytes, int], tuple[Any, ...]] = cut.unpack_from
        """Constants and variables in turn, from a constant on."""
        self.size = cut.size
        self.variables = variables
        """Picks them out, in the order in which they were declared."""
        self.tail = tail
        """Constant bytes at the end of the header; before them there may be a text of any length."""
        self.known: dict[tuple[bytes, ...], dict[bytes, F]] = {}
        """Fields by the constants of a header: those that are cut out, and the tail."""


class _Variable(NamedTuple):
    name: str
    digits_max: int | None
    """Surely within the number's range; None for a text of any length, the last of the variables."""


class LearnedHeaders(Generic[F]):
    """Layouts and fields of one kind of request."""

    def __init__(self, fields: type[F], variables: tuple[_Variable, ...]) -> None:
        """A text of any length must be the last variable of a header, or it is not learned."""
        self._fields = fields
        self._variables = variables
        self.layouts: dict[int, tuple[_Layout[F], ...]] = {}
        """By a number that is cheap to find: few layouts have the same."""
        self._layouts_count = self._known_count = 0

    def read(self, header: bytes, key: int | None) -> tuple[bytes, F] | None:
        """The opaque number and the fields, by the general decoder; None when they are uncommon. What it learned is
        found under the key."""
        try:
            command = decode_binary_header(header)
            if command.flag or command.remark or command.excess:
                return None
            fields = msgspec.convert(command.ext, self._fields, strict=False)
        except (HeaderError, msgspec.ValidationError, TypeError):
            return None
        if key is not None and _SIGNATURES.isdisjoint(command.ext):
            self._learn(header, key, fields, len(command.ext))
        return header[_OPAQUE], fields

    def _learn(self, header: bytes, key: int, fields: F, fields_count: int) -> None:
        spans = _spans(header)
        if len(spans) != fields_count:  # a name comes twice
            return
        cuts = [(_OPAQUE, "4s")]
        tail_at = 0
        for name, digits_max in self._variables:
            span = spans.get(name)
            if span is None:
                return
            tail_at = max(tail_at, span.stop)
            if digits_max is None:
                cuts += (_FIELDS_LENGTH, "I"), (slice(span.start - 4, span.start), "I")
                if span.stop < tail_at:
                    return
            elif header[span].isdigit() and span.stop - span.start <= digits_max:
                cuts.append((span, f"{span.stop - span.start}s"))
            else:
                return
        if self._layouts_count >= LAYOUTS_MAX or self._known_count >= KNOWN_MAX:
            self._forget()
        layout = self._layout(key, cuts, len(header) - tail_at)
        tails = layout.known.setdefault(layout.unpack(header, 0)[::2], {})
        tails[header[tail_at:]] = fields
        self._known_count += 1

    def _layout(self, key: int, cuts: list[tuple[slice, str]], tail: int) -> _Layout[F]:
        """One for each way to cut a header; of too many under one key the oldest goes."""
        ordered = sorted(cuts, key=lambda cut: cut[0].start)
        form, position = ">", 0
        for span, kind in ordered:
            form += f"{span.start - position}s{kind}"
            position = span.stop
        layouts = self.layouts.get(key, ())
        for layout in layouts:
            if (layout.form, layout.tail) == (form, tail):
                return layout
        variables = itemgetter(*(2 * ordered.index(cut) + 1 for cut in cuts))
        made = _Layout[F](form, variables, tail)
        self.layouts[key] = (made, *layouts[: _LAYOUTS_OF_A_KEY_MAX - 1])
        self._layouts_count += 1
        return made

    def _forget(self) -> None:
        self.layouts.clear()
        self._layouts_count = self._known_count = 0


def _spans(header: bytes) -> dict[str, slice]:
    """Where the values are, in a header that the general decoder has read."""
    spans: dict[str, slice] = {}
    position = _FIXED_BYTES
    while position < len(header):
        name_end = position + 2 + int.from_bytes(header[position : position + 2], "big")
        value_end = name_end + 4 + int.from_bytes(header[name_end : name_end + 4], "big")
        spans[header[position + 2 : name_end].decode()] = slice(name_end + 4, value_end)
        position = value_end
    return spans


def _are_digits(*values: bytes) -> bool:
    return all(map(bytes.isdigit, values))


# --- sends ------------------------------------------------------------------------------------------------------------

BINARY_SENDS = tuple(code.to_bytes(2, "big") for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
_FIRST_LENGTH = 27
"""Java writes the producer group first: this is the last byte of its length."""
_SECOND_LENGTH = 34
"""The same of the topic, which comes next, behind a group of no bytes."""


class BinarySendFrames:
    """The key of a layout is the length of group and topic together; the property text is of any length."""

    def __init__(self) -> None:
        self.learned = LearnedHeaders(SendFields, (_Variable("e", 9), _Variable("g", 18), _Variable("i", None)))

    def frames(
        self, data: bytes, position: int, limits: FrameLimits, check: FrameCheck | None = None
    ) -> Iterator[tuple[int, bytes, SendFields, int]]:
        """As `json_send_frames`, for binary headers."""
        learned = self.learned
        layouts, available = learned.layouts, len(data)
        frame_bytes_max = limits.frame_bytes_max
        header_bytes_max = min(limits.header_bytes_max, SURELY_WITHIN_LIMITS)
        while data.startswith(BINARY_SENDS, position + 8):
            length, word = _unpack_prefix(data, position)
            header_at, header_bytes = position + 8, word - _KIND
            body_at = header_at + header_bytes
            position += 4 + length
            if (
                not _FIXED_BYTES < header_bytes <= header_bytes_max
                or not body_at <= position <= available
                or length + 4 > frame_bytes_max
            ):
                return
            fields, key = None, None
            try:
                key = data[header_at + _FIRST_LENGTH]
                key += data[header_at + _SECOND_LENGTH + key]
                for layout in layouts.get(key, ()):
                    items = layout.unpack(data, header_at)
                    tails = layout.known.get(items[::2])
                    if tails is not None:
                        text_end = body_at - layout.tail
                        fields = tails.get(data[text_end:body_at])
                        if fields is not None:
                            break
            except (IndexError, struct.error):  # shorter than any that was learned
                pass
            if fields is None:
                read = learned.read(data[header_at:body_at], key)
                if read is None:
                    return
                opaque, fields = read
            else:
                opaque, queue, born, fields_bytes, text_bytes = layout.variables(items)
                text_at = header_at + layout.size
                if (
                    fields_bytes != header_bytes - _FIXED_BYTES
                    or text_bytes != text_end - text_at
                    or not born.isdigit()
                ):
                    return
                queue_id = _NUMBERS.get(queue)
                if queue_id is None:
                    if not queue.isdigit():
                        return
                    queue_id = int(queue)
                try:
                    text = data[text_at:text_end].decode()
                except UnicodeDecodeError:
                    return
                fields = replace(fields, queue_id=queue_id, born_timestamp=int(born), properties=text)
            if check is not None and not check(fields, data[header_at:body_at], data[body_at:position]):
                return
            yield position, opaque, fields, body_at


# --- pulls ------------------------------------------------------------------------------------------------------------

BINARY_PULLS = tuple(code.to_bytes(2, "big") for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))


class BinaryPullFrames:
    """The key of a layout is the length of the header."""

    def __init__(self) -> None:
        self.learned = LearnedHeaders(
            PullFields, (_Variable("queueId", 9), _Variable("queueOffset", 18), _Variable("commitOffset", 18))
        )

    def frames(
        self, data: bytes, position: int, limits: FrameLimits, check: FrameCheck | None = None
    ) -> Iterator[tuple[int, bytes, PullFields, int]]:
        """As `json_pull_frames`, for binary headers."""
        learned = self.learned
        layouts, available = learned.layouts, len(data)
        frame_bytes_max = limits.frame_bytes_max
        header_bytes_max = min(limits.header_bytes_max, SURELY_WITHIN_LIMITS)
        while data.startswith(BINARY_PULLS, position + 8):
            length, word = _unpack_prefix(data, position)
            header_at, header_bytes = position + 8, word - _KIND
            body_at = header_at + header_bytes
            position += 4 + length
            if (
                not _FIXED_BYTES < header_bytes <= header_bytes_max
                or not body_at <= position <= available
                or length + 4 > frame_bytes_max
            ):
                return
            fields = None
            for layout in layouts.get(header_bytes, ()):
                items = layout.unpack(data, header_at)
                tails = layout.known.get(items[::2])
                if tails is not None:
                    fields = tails.get(data[body_at - layout.tail : body_at])
                    if fields is not None:
                        break
            if fields is None:
                read = learned.read(data[header_at:body_at], header_bytes)
                if read is None:
                    return
                opaque, fields = read
            else:
                opaque, queue, offset, commit = layout.variables(items)
                if not _are_digits(queue, offset, commit):
                    return
                fields = replace(
                    fields,
                    queue_id=int(queue),
                    queue_offset=QueueOffset(int(offset)),
                    commit_offset=QueueOffset(int(commit)),
                )
            if check is not None and not check(fields, data[header_at:body_at], data[body_at:position]):
                return
            yield position, opaque, fields, body_at
