"""The fast decoder of binary headers, by layouts that it learns from what clients send.

A client's headers differ in few values. So the first one is read field by field, by the general decoder, and leaves two
things behind: its layout, which is one struct that cuts such a header into values that vary and the bytes between them,
and its fields, which are found again by those bytes:

    | code 5   | opaque 4 | flag, remark, length 12 | a=shop b=orders c=TBW102 d=4 e= | 3 | f=0 g= | 17.. | h=0 i= | ...
      constant   varies     known by the length       constant: names, lengths, values  var.  const.   var.   const.

The next header with equal constants has the same fields but for what varies: one call of `unpack_from` and a look-up or
two find them. That takes 1.3 us for a send, where field by field takes 8. No constant is interpreted: bytes that are
equal mean the same.

As for JSON headers (json_headers.py), anything uncommon ends the run, and there are no errors here. What is learned is
bounded: at a limit all is forgotten, and a peer that always sends something new has each header read field by field.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeGuard, TypeVar

import msgspec
from msgspec.structs import replace

from ariane.errors import HeaderError
from ariane.wire.codes import HeaderFlag, RequestCode, Serialization
from ariane.wire.fast.fields import FrameCheck, OutcomeFields, PullFields, SendFields
from ariane.wire.fields import Request
from ariane.wire.frame import SURELY_WITHIN_LIMITS, FrameLimits, decode_binary_header
from ariane.wire.signature import SIGNATURE, SIGNATURE_V2

F = TypeVar("F", bound=Request[Any])

_KIND = Serialization.BINARY << 24
_unpack_prefix = struct.Struct(">iI").unpack_from
_FIXED_BYTES = 21
"""Up to the first field, in a header without a remark."""
_OPAQUE = slice(5, 9)

LAYOUTS_MAX = 1024
KNOWN_MAX = 10_000
"""Headers, of which each takes up to 5 KiB: it has up to 1.5, twice for a send, and its fields are there as texts."""
_LAYOUTS_OF_A_KEY_MAX = 8

_DIGITS_32, _DIGITS_64 = 9, 18
"""So many digits are surely within 32 and 64 bits."""

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


class Layout:
    """A way to cut headers, and what is known of those that were cut so."""

    __slots__ = ("form", "known", "size", "tail", "unpack")

    def __init__(self, form: str, tail: int = 0) -> None:
        """`tail` is how many constant bytes follow a text of any length."""
        cut = struct.Struct(form)
        self.form, self.tail = form, tail
        self.unpack: Callable[[bytes, int], tuple[Any, ...]] = cut.unpack_from
        self.size = cut.size
        self.known: dict[tuple[bytes, ...], Any] = {}


L = TypeVar("L", bound=Layout)


class LearnedHeaders(ABC, Generic[F, L]):
    """Layouts and fields of one kind of request."""

    _flags: frozenset[int] = frozenset({0})
    """Those of a header that is common."""

    def __init__(self, fields: type[F]) -> None:
        self._fields = fields
        self.layouts: dict[int, tuple[L, ...]] = {}
        """By a number that is cheap to find: few layouts have the same."""
        self._layouts_count = self._known_count = 0

    def read(self, header: bytes, key: int) -> tuple[bytes, F] | None:
        """The opaque number and the fields, by the general decoder; None when they are uncommon. What it learned is
        found under the key."""
        try:
            command = decode_binary_header(header)
            if command.flag not in self._flags or command.remark or command.excess:
                return None
            fields = msgspec.convert(command.ext, self._fields, strict=False)
        except (HeaderError, msgspec.ValidationError, TypeError):
            return None
        if _SIGNATURES.isdisjoint(command.ext):
            spans = _spans(header)
            if len(spans) == len(command.ext):  # no name comes twice
                self._learn(header, key, fields, spans)
        return header[_OPAQUE], fields

    @abstractmethod
    def _learn(self, header: bytes, key: int, fields: F, spans: dict[str, slice]) -> None:
        """Remembers a header, if it has what varies in the places where it is expected."""

    @abstractmethod
    def _new_layout(self, form: str, tail: int) -> L: ...

    def _layout(self, key: int, form: str, tail: int = 0) -> L:
        """For one header more. One for each way to cut them, the newest first; of too many under a key the oldest goes.

        At a limit all are forgotten.
        """
        if self._layouts_count >= LAYOUTS_MAX or self._known_count >= KNOWN_MAX:
            self.layouts.clear()
            self._layouts_count = self._known_count = 0
        self._known_count += 1
        layouts = self.layouts.get(key, ())
        for layout in layouts:
            if (layout.form, layout.tail) == (form, tail):
                return layout
        made = self._new_layout(form, tail)
        self.layouts[key] = (made, *layouts[: _LAYOUTS_OF_A_KEY_MAX - 1])
        self._layouts_count += 1
        return made


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


def _size(span: slice) -> int:
    size: int = span.stop - span.start
    return size


def _is_number(span: slice | None, header: bytes, digits_max: int) -> TypeGuard[slice]:
    return span is not None and header[span].isdigit() and _size(span) <= digits_max


# --- sends ------------------------------------------------------------------------------------------------------------
#
# They have a loop of their own. What is known is found by the constant that holds group and topic; the other constants
# are compared with those of the last send with this one, which takes less time than to look for all of them.

BINARY_SENDS = tuple(code.to_bytes(2, "big") for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
_FIRST_LENGTH = 27
"""Java writes the producer group first: this is the last byte of its length."""
_SECOND_LENGTH = 34
"""The same of the topic, which comes next, behind a group of no bytes."""

_MIDDLES = tuple(bytes(8) + max(0, size - _FIXED_BYTES).to_bytes(4, "big") for size in range(SURELY_WITHIN_LIMITS + 1))
"""What follows the opaque number in a header of so many bytes: no flag, no remark, the length of its fields."""

_KnownSend = tuple[bytes, bytes, bytes, bytes, SendFields]
"""The constants but for that with group and topic: code to version, before and behind the time, the tail."""


class _SendLayout(Layout):
    __slots__ = ("recent",)

    def __init__(self, form: str, tail: int) -> None:
        super().__init__(form, tail)
        self.recent: dict[bytes, _KnownSend] = {}
        """By the constant with group and topic, what was sent last."""


class BinarySendFrames(LearnedHeaders[SendFields, _SendLayout]):
    """The key of a layout is the length of group and topic together."""

    def __init__(self) -> None:
        super().__init__(SendFields)

    def frames(
        self, data: bytes, position: int, limits: FrameLimits, check: FrameCheck | None = None
    ) -> Iterator[tuple[int, bytes, SendFields, int]]:
        """As `json_send_frames`, for binary headers."""
        layouts, available = self.layouts, len(data)
        frame_bytes_max = limits.frame_bytes_max
        header_bytes_max = min(limits.header_bytes_max, SURELY_WITHIN_LIMITS)
        last_born, born_ms = b"", 0
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
            fields = None
            try:
                key = data[header_at + _FIRST_LENGTH]
                key += data[header_at + _SECOND_LENGTH + key]
                for layout in layouts.get(key, ()):
                    first, opaque, middle, head, queue, before, born, behind, text_bytes = layout.unpack(
                        data, header_at
                    )
                    known = layout.recent.get(head)
                    if known is None:
                        continue
                    text_end = body_at - layout.tail
                    last_first, last_before, last_behind, tail, fields = known
                    if (
                        first == last_first
                        and before == last_before
                        and behind == last_behind
                        and data.startswith(tail, text_end)
                    ):
                        break
                    known = layout.known.get((first, head, before, behind, data[text_end:body_at]))
                    if known is not None:
                        layout.recent[head] = known
                        fields = known[4]
                        break
                    fields = None
            except IndexError:  # too short for group and topic
                return
            except struct.error:  # shorter than one that is known, at the end of the chunk
                fields = None
            if fields is None:
                read = self.read(data[header_at:body_at], key)
                if read is None:
                    return
                opaque, fields = read
            else:
                text_at = header_at + layout.size
                if middle != _MIDDLES[header_bytes] or text_bytes != text_end - text_at:
                    return
                if born != last_born:  # hundreds of messages are born in the same millisecond
                    if not born.isdigit():
                        return
                    last_born, born_ms = born, int(born)
                queue_id = _NUMBERS.get(queue)
                if queue_id is None:
                    if not queue.isdigit():
                        return
                    queue_id = int(queue)
                try:
                    text = data[text_at:text_end].decode()
                except UnicodeDecodeError:
                    return
                fields = replace(fields, queue_id=queue_id, born_timestamp=born_ms, properties=text)
            if check is not None and not check(fields, data[header_at:body_at], data[body_at:position]):
                return
            yield position, opaque, fields, body_at

    def _learn(self, header: bytes, key: int, fields: SendFields, spans: dict[str, slice]) -> None:
        queue, born, text = spans.get("e"), spans.get("g"), spans.get("i")
        if (
            text is None
            or not _is_number(queue, header, _DIGITS_32)
            or not _is_number(born, header, _DIGITS_64)
            or not queue.stop < born.start < text.start
        ):
            return
        sizes = queue.start - _FIXED_BYTES, _size(queue), born.start - queue.stop, _size(born)
        form = ">5s4s12s{}s{}s{}s{}s{}sI".format(*sizes, text.start - 4 - born.stop)
        layout = self._layout(key, form, len(header) - text.stop)
        first, _, _, head, _, before, _, behind, _ = layout.unpack(header, 0)
        known = first, before, behind, header[text.stop :], fields
        layout.recent[head] = layout.known[first, head, before, behind, header[text.stop :]] = known

    def _new_layout(self, form: str, tail: int) -> _SendLayout:
        return _SendLayout(form, tail)


# --- other requests ---------------------------------------------------------------------------------------------------


class _Variable(NamedTuple):
    name: str
    digits_max: int | None
    """None for a text, which may be missing."""


class _OrderedLayout(Layout):
    __slots__ = ("variables",)

    variables: Callable[[tuple[Any, ...]], tuple[bytes, ...]]
    """Picks the opaque number and the variables out of what was unpacked, in the order in which they are declared."""


class BinaryFrames(LearnedHeaders[F, _OrderedLayout]):
    """A decoder of requests without a text of any length: the key of a layout is the length of the header.

    Constants and variables take turns in what is unpacked. The order of the variables does not matter.
    """

    def __init__(self, codes: tuple[bytes, ...], fields: type[F], variables: tuple[_Variable, ...]) -> None:
        super().__init__(fields)
        self._codes = codes
        self._variables = variables

    def frames(
        self, data: bytes, position: int, limits: FrameLimits, check: FrameCheck | None = None
    ) -> Iterator[tuple[int, bytes, F, int]]:
        """As `json_frames`, for binary headers."""
        layouts, available = self.layouts, len(data)
        frame_bytes_max = limits.frame_bytes_max
        header_bytes_max = min(limits.header_bytes_max, SURELY_WITHIN_LIMITS)
        while data.startswith(self._codes, position + 8):
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
            for layout in layouts.get(header_bytes, ()):
                items = layout.unpack(data, header_at)
                known = layout.known.get(items[::2])
                if known is not None:
                    variables = layout.variables(items)
                    opaque, fields = variables[0], self._filled(known, variables)
                    break
            else:
                opaque, fields = self.read(data[header_at:body_at], header_bytes) or (b"", None)
            if fields is None:
                return
            if check is not None and not check(fields, data[header_at:body_at], data[body_at:position]):
                return
            yield position, opaque, fields, body_at

    @abstractmethod
    def _filled(self, fields: F, variables: tuple[bytes, ...]) -> F | None:
        """The fields with what varies, behind the opaque number; None when that is uncommon."""

    def _learn(self, header: bytes, key: int, fields: F, spans: dict[str, slice]) -> None:
        cuts = [_OPAQUE]
        for name, digits_max in self._variables:
            span = spans.get(name)
            if digits_max is None:
                cuts += [] if span is None else [span]
            elif _is_number(span, header, digits_max):
                cuts.append(span)
            else:
                return
        ordered = sorted(cuts, key=lambda cut: cut.start)
        form, position = ">", 0
        for cut in ordered:
            form += f"{cut.start - position}s{_size(cut)}s"
            position = cut.stop
        layout = self._layout(key, f"{form}{len(header) - position}s")
        layout.variables = itemgetter(*(2 * ordered.index(cut) + 1 for cut in cuts))
        layout.known[layout.unpack(header, 0)[::2]] = fields

    def _new_layout(self, form: str, tail: int) -> _OrderedLayout:
        return _OrderedLayout(form, tail)


BINARY_PULLS = tuple(code.to_bytes(2, "big") for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))


class BinaryPullFrames(BinaryFrames[PullFields]):
    def __init__(self) -> None:
        offsets = _Variable("queueOffset", _DIGITS_64), _Variable("commitOffset", _DIGITS_64)
        super().__init__(BINARY_PULLS, PullFields, (_Variable("queueId", _DIGITS_32), *offsets))

    def _filled(self, fields: PullFields, variables: tuple[bytes, ...]) -> PullFields | None:
        _, queue, offset, commit = variables
        if not (queue.isdigit() and offset.isdigit() and commit.isdigit()):
            return None
        return replace(fields, queue_id=int(queue), queue_offset=int(offset), commit_offset=int(commit))


BINARY_OUTCOMES = (RequestCode.END_TRANSACTION.to_bytes(2, "big"),)
_ONEWAY = int(HeaderFlag.ONEWAY)
_FLAG_AT = 8 + 12
"""The last byte of the flag, in a frame."""


class _BinaryOutcomes(BinaryFrames[OutcomeFields]):
    _flags = frozenset({0, _ONEWAY})

    def __init__(self) -> None:
        offsets = _Variable("tranStateTableOffset", _DIGITS_64), _Variable("commitLogOffset", _DIGITS_64)
        ids = _Variable("msgId", None), _Variable("transactionId", None)
        super().__init__(BINARY_OUTCOMES, OutcomeFields, (*offsets, *ids))

    def _filled(self, fields: OutcomeFields, variables: tuple[bytes, ...]) -> OutcomeFields | None:
        _, queue_offset, log_offset, message_id = variables[:4]
        if not (queue_offset.isdigit() and log_offset.isdigit()):
            return None
        try:
            return replace(
                fields,
                tran_state_table_offset=int(queue_offset),
                commit_log_offset=int(log_offset),
                msg_id=message_id.decode(),
                transaction_id=variables[4].decode() if len(variables) > 4 else None,
            )
        except UnicodeDecodeError:
            return None


class BinaryOutcomeFrames:
    def __init__(self) -> None:
        self.learned = _BinaryOutcomes()

    def frames(
        self, data: bytes, position: int, limits: FrameLimits
    ) -> Iterator[tuple[int, bytes | None, OutcomeFields, int]]:
        """As `json_outcome_frames`, for binary headers."""
        for end, opaque, fields, body_at in self.learned.frames(data, position, limits):
            yield end, None if data[position + _FLAG_AT] & _ONEWAY else opaque, fields, body_at
            position = end
