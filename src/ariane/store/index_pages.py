"""Which pages of an index file the event loop may touch without a wait for the disk.

Keys fall into slots all over a file of 20 MB, and most of its pages may have left memory since they were last touched:
each would be a page fault. So they are asked for before keys are put, and a thread fetches what is missing:

    touched since the last sync        in memory: the kernel is not asked
    a few others                       asked for, page by page; those that are not there are fetched
    many others                        all slots are fetched, in order: one by one would take longer

Entries are written behind the last one. A page that a write changes only in part is read first, so the first and the
last page of theirs are asked for as well.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ariane.store.disk import File
from ariane.store.index_layout import HEADER_BYTES, SLOT_BYTES, entries_position
from ariane.store.key_hash import Int32s
from ariane.store.steps import Errand

_PAGE_BYTES = 4096
_SLOTS_OF_A_PAGE = _PAGE_BYTES // SLOT_BYTES
_SLOTS_OF_HEADER = HEADER_BYTES // SLOT_BYTES
assert HEADER_BYTES % SLOT_BYTES == 0, "no slot lies over two pages"
_ASKED_MAX = 64
_FETCHED_BYTES = 1 << 20
_AHEAD_BYTES = 1 << 20
"""Of the entries' places, what is fetched at once: the next rounds want it."""


class IndexPages:
    """Of one file. For the loop; the errands are for a thread."""

    def __init__(self, file: File, slots: int, *, is_new: bool) -> None:
        """Of a new file nothing has to be read: it is allocated and empty, and a hole behind its last entry."""
        self._file = file
        self._is_new = is_new
        self._slots = np.int32(slots)
        self._slots_end = entries_position(slots)
        self._is_warm: NDArray[np.bool_] = np.full(-(-self._slots_end // _PAGE_BYTES), is_new)
        self._are_all_warm = is_new

    def cold(self, hashes: Int32s, begin: int, end: int) -> Errand | None:
        """What has to be done before keys of these hashes are put, whose entries are written from `begin` to `end`.

        None when that would not wait. What is asked for is taken to be touched: do it now.
        """
        pages = [] if self._are_all_warm else self._unknown(hashes)
        is_many = len(pages) > _ASKED_MAX
        cold_pages = [] if is_many else [page for page in pages if not self._is_cached(page * _PAGE_BYTES)]
        # behind the first page, a file that another process began may hold what it forgot in a crash
        cold_ends = [at for at in ((begin,) if self._is_new else (begin, end - 1)) if not self._is_cached(at)]
        if is_many:
            return partial(self._fetch_all, cold_ends)
        if cold_pages or cold_ends:
            return partial(self._fetch, cold_pages, cold_ends)
        self._is_warm[pages] = True
        return None

    def _unknown(self, hashes: Int32s) -> list[int]:
        """Pages of the header and of the slots, of which it is not known whether they are in memory."""
        pages = (hashes % self._slots + _SLOTS_OF_HEADER) // _SLOTS_OF_A_PAGE
        unknown = set(pages[~self._is_warm[pages]].tolist())
        return sorted(unknown if self._is_warm[0] else unknown | {0})

    def _is_cached(self, position: int) -> bool:
        return self._file.read_cached(1, position) is not None

    def synced(self) -> None:
        """What was touched before may leave memory from now on."""
        self._is_warm[:] = self._are_all_warm = False

    # --- for a thread -------------------------------------------------------------------------------------------------

    def _fetch(self, pages: list[int], ends: Iterable[int]) -> None:
        for page in pages:
            self._file.read(1, page * _PAGE_BYTES)
        self._is_warm[pages] = True
        self._fetch_ahead(ends)

    def _fetch_all(self, ends: Iterable[int]) -> None:
        for position in range(0, self._slots_end, _FETCHED_BYTES):
            self._file.read(min(_FETCHED_BYTES, self._slots_end - position), position)
        self._is_warm[:] = self._are_all_warm = True
        self._fetch_ahead(ends)

    def _fetch_ahead(self, ends: Iterable[int]) -> None:
        for position in ends:
            self._file.read(1 if self._is_new else _AHEAD_BYTES, position)
