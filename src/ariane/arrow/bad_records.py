"""Records that cannot be given as rows: counted, told, and never just left out; and how to find the next whole one."""

from dataclasses import dataclass

from ariane.arrow.source import Source
from ariane.arrow.starts import MAGIC, MAGIC_AT
from ariane.wire.record import RECORD_BYTES_MAX
from ariane.wire.record_view import BrokenRecord, RecordView, verify


@dataclass(frozen=True, slots=True)
class BadRecord:
    """`position` is a physical offset where one is known, else a place in the buffer; `size` is all that was passed."""

    position: int
    size: int
    reason: str


def reason_at(source: Source, position: int, limit: int, base: int | None, size_max: int = RECORD_BYTES_MAX) -> str:
    """Why there is no record at `position`."""
    verdict = verify(source.view, position, end=limit, check_body_crc=False, size_max=size_max)
    if isinstance(verdict, BrokenRecord):
        return verdict.reason
    if isinstance(verdict, RecordView) and base is not None:
        return f"a record that belongs at {verdict.physical_offset}: an older or a copied one"
    return "the blank end of a file"


def next_record(source: Source, start: int, limit: int, base: int | None, size_max: int = RECORD_BYTES_MAX) -> int:
    """The first true record start from `start` on; `limit` when there is none.

    True is a record with a magic number, lengths that add up and a body that fits its checksum; where `base` is known,
    it also has to stand where it says that it does.
    """
    at = start
    while (found := MAGIC.search(source.view, at + MAGIC_AT, limit)) is not None:
        candidate = found.start() - MAGIC_AT
        verdict = verify(source.view, candidate, end=limit, size_max=size_max)
        if isinstance(verdict, RecordView) and (base is None or verdict.physical_offset == base + candidate):
            return candidate
        at = candidate + 1
    return limit
