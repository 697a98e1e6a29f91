"""Which files of an index can be believed, and up to where, when a store is opened.

What is not believed is forgotten, in every file, so that the index is that of the log up to some message. Putting the
messages behind it then leaves neither a hole nor a second entry.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ariane.store.index_file import IndexFile

log = logging.getLogger(__name__)


class Cut(NamedTuple):
    kept: list[IndexFile]
    dropped: list[IndexFile]
    """Newest first. To be removed in this order, so that a crash on the way leaves no gap between files."""
    damaged_from: int | None = None
    """From which message on an index is lost that should be there; None when nothing is."""


def cut(files: Sequence[IndexFile], limit: int, *, crashed: bool) -> Cut:
    """Forgets all messages from `limit` on.

    After a crash the newest file that stays is made anew from its entries, unless it was full: only the slots of a
    full file cannot have been on their way to the disk after the sync that `limit` stands for.
    """
    kept = [file for file in files if not file.is_empty]
    dropped = [file for file in files if file.is_empty]
    damaged_from = None
    while kept:
        last = kept[-1]
        if last.is_empty or last.header.begin_physical >= limit:
            dropped.append(kept.pop())
        elif last.end_physical < limit and not (crashed and last.room):
            break
        else:
            found = _cut_file(last, limit)
            if found < limit:
                damaged_from = limit = found
            if not last.is_empty:
                break
    return Cut(kept, dropped, damaged_from)


def cut_damage(files: Sequence[IndexFile], is_sound: Callable[[IndexFile], bool]) -> Cut:
    """Drops the first file that is not sound, with all that were made after it: messages are put to the end only.

    After it by name, because what a damaged header says of the order means nothing. The last message before it goes,
    too: some of its keys may be in what was dropped.
    """
    damaged = [file for file in files if not is_sound(file)]
    if not damaged:
        return Cut(list(files), [])
    first = min(file.path.name for file in damaged)
    older = [file for file in files if file.path.name < first]
    newer = sorted((file for file in files if file.path.name >= first), key=lambda file: file.path.name, reverse=True)
    limit = max((file.end_physical for file in older if not file.is_empty), default=0)
    for file in damaged:
        _warn(file, limit)
    result = cut(older, limit, crashed=False)
    return Cut(result.kept, [*newer, *result.dropped], limit if result.damaged_from is None else result.damaged_from)


def _cut_file(file: IndexFile, limit: int) -> int:
    found = file.keep_before(limit)
    if found < limit:
        _warn(file, found)
    return found


def _warn(file: IndexFile, limit: int) -> None:
    log.warning("index file damaged, dropped from here on", extra={"path": str(file.path), "begin": limit})
