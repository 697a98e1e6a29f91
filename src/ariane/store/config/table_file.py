"""JSON tables under `config/`, each in two equal copies that carry a checksum.

    topics.json       {"arianeCrc32":"8d3f01aa","arianeSaves":17,"dataVersion":{...},"topicConfigTable":{...}}
    topics.json.bak   the same bytes
    tables.json       {"arianeCrc32":"51c0a3e2","tables":["topics.json","consumerOffset.json"]}

The checksum covers the content without that field. It is a field of the table and not a file beside it because Apache's
brokers read these files too: they ignore a field that they do not know, and a table that they have written has none. So
a table without a checksum is one of Apache's, or of an older release, and is accepted.

Saving replaces first the copy, then the table, each atomically: after any crash one of the two is intact, and a save
that fails has not changed the table. Loading takes the first of the two that is intact, or the copy if that has more
saves: then the table was replaced by an old one, or the last save did not end. It says so if it takes the copy, and
makes the other one equal to it. What was rejected is kept as `topics.json.rejected`: it may be an edit by hand.

`tables.json` lists the tables that were ever there, so that a removed table is not taken for a new, empty one.
"""

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec

from ariane.errors import StoreCorrupt, WireError
from ariane.store.disk import Disk, read_all, replace_all
from ariane.wire.hashes import running_crc32
from ariane.wire.json import fastjson

log = logging.getLogger(__name__)

CONFIG_BYTES_MAX = 256 * 1024 * 1024
CHECKSUM_FIELD = "arianeCrc32"
SAVES_FIELD = "arianeSaves"
LIST_NAME = "tables.json"
ACCEPT_COMMAND = "ariane store accept-config"

_FIELD = re.compile(rb'\{"' + CHECKSUM_FIELD.encode() + rb'":"([0-9a-f]{8})"(?=[,}])')
_SAVES = re.compile(_FIELD.pattern + rb',"' + SAVES_FIELD.encode() + rb'":([0-9]{1,18})(?=[,}])')
_PREFIX = b'{"' + CHECKSUM_FIELD.encode() + b'":'
_PREFIX_DIFFERENCES_MAX = 4  # Apache's files differ from it in almost every byte, older ones of ours in nine
_REFERENCE = b'"$ref"'  # standard JSON, too, but it stands for another value
_list_lock = Lock()  # tables are saved by several threads


# --- one copy ---


class CopyState(Enum):
    MISSING = "missing"
    DAMAGED = "damaged"
    PLAIN = "without a checksum"
    INTACT = "intact"


class TableCopy(NamedTuple):
    """What a file holds. `value` is the parsed table, without the checksum and the number of saves."""

    path: Path
    state: CopyState
    data: bytes = b""
    value: object = None
    problem: str = ""
    saves: int = 0
    """How often the table had been saved; 0 when Apache or an older release wrote it."""

    @property
    def is_usable(self) -> bool:
        return self.state in (CopyState.PLAIN, CopyState.INTACT)


def with_checksum(content: bytes, saves: int = 0) -> bytes:
    """The table with its checksum as the first field, and how often it was saved unless that is 0."""
    assert content.startswith(b"{"), "a table is a JSON object"
    rest = content[1:].lstrip()
    if saves:
        rest = b'"%s":%d%s%s' % (SAVES_FIELD.encode(), saves, b"" if rest.startswith(b"}") else b",", rest)
    field = b'{"%s":"%08x"' % (CHECKSUM_FIELD.encode(), running_crc32(b"{" + rest))
    return field + rest if rest.startswith(b"}") else field + b"," + rest


def _saves_of(data: bytes) -> int:
    found = _SAVES.match(data)
    return int(found[2]) if found is not None else 0


def read_copy(disk: Disk, path: Path) -> TableCopy:
    """Reads and checks one file; an unreadable one is damaged."""
    try:
        data = read_all(disk, path, CONFIG_BYTES_MAX)
    except OSError as error:
        return TableCopy(path, CopyState.DAMAGED, problem=f"it cannot be read: {error.strerror}")
    if data is None:
        return TableCopy(path, CopyState.MISSING)
    if not data:
        return TableCopy(path, CopyState.DAMAGED, problem="it is empty")
    try:
        value = _parsed(data)
    except WireError as error:
        return TableCopy(path, CopyState.DAMAGED, data, problem=str(error))
    return _checked(path, data, value)


def _parsed(data: bytes) -> object:
    """Standard JSON, which most tables are, is parsed twenty times faster: a table may have 100,000 rows."""
    if _REFERENCE not in data:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(data)
    return fastjson.parse(data, values_max=CONFIG_BYTES_MAX, size_max=CONFIG_BYTES_MAX)


def _checked(path: Path, data: bytes, value: object) -> TableCopy:
    if not isinstance(value, dict):
        return TableCopy(path, CopyState.DAMAGED, data, problem="it is not a JSON object")
    field = _FIELD.match(data)
    value.pop(SAVES_FIELD, None)
    if field is None and CHECKSUM_FIELD not in value and not _begins_like_the_field(data):
        return TableCopy(path, CopyState.PLAIN, data, value)
    rest = b"" if field is None else data[field.end() :]
    content = b"{" + rest.removeprefix(b",")
    if field is None or int(field[1], 16) != running_crc32(content):
        return TableCopy(path, CopyState.DAMAGED, data, value, "it does not match its checksum")
    value.pop(CHECKSUM_FIELD)
    return TableCopy(path, CopyState.INTACT, data, value, saves=_saves_of(data))


def _begins_like_the_field(data: bytes) -> bool:
    """Whether damage to the field's own name hides the checksum."""
    head = data[: len(_PREFIX)]
    differences = sum(mine != other for mine, other in zip(head, _PREFIX, strict=False))
    return differences + len(_PREFIX) - len(head) <= _PREFIX_DIFFERENCES_MAX


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


# --- a table ---


def load_config(disk: Disk, path: Path) -> object | None:
    """The parsed table; None when there never was one. StoreCorrupt when neither copy is intact."""
    table = read_copy(disk, path)
    if table.is_usable:
        newer = _renew_copy(disk, table) if table.state is CopyState.INTACT else None
        _remember(disk, path)
        return table.value if newer is None else newer.value
    copy = read_copy(disk, backup_of(path))
    if copy.is_usable:
        _use_copy(disk, table, copy)
        _remember(disk, path)
        return copy.value
    if table.state is copy.state is CopyState.MISSING:
        if path.name in listed_tables(disk, path.parent):
            raise StoreCorrupt(
                f"{path} and {copy.path.name} are missing: restore one of them from a copy of the store, or run "
                f"`{ACCEPT_COMMAND} {path.parent.parent}` to go on without it"
            )
        return None
    problems = "; ".join(f"{one.path}: {one.problem or 'missing'}" for one in (table, copy))
    raise StoreCorrupt(
        f"{problems}. Restore one of them from a copy of the store; if the first was edited by hand, run "
        f"`{ACCEPT_COMMAND} {path.parent.parent}`; or remove both and run that, to go on without the table"
    )


def read_config(disk: Disk, path: Path) -> object | None:
    """The table that `load_config` would return, without writing anything; None also when neither copy is intact."""
    table, copy = read_copy(disk, path), read_copy(disk, backup_of(path))
    is_older = table.state is CopyState.INTACT and copy.saves > table.saves
    used = copy if is_older or not table.is_usable else table
    return used.value if used.is_usable else None


def _renew_copy(disk: Disk, table: TableCopy) -> TableCopy | None:
    """Makes the copy equal to the table. If the copy is newer it is returned, and the table made equal to it."""
    try:
        if read_all(disk, backup_of(table.path), CONFIG_BYTES_MAX) == table.data:
            return None
    except OSError as error:
        log.warning("copy of a table not readable", extra={"file": str(table.path), "reason": error.strerror})
    copy = read_copy(disk, backup_of(table.path))
    if not copy.is_usable:
        fields = {"file": str(copy.path), "reason": copy.problem or copy.state.value}
        log.warning("copy of a table is not intact, written again", extra=fields)
    if copy.saves > table.saves:
        log.error(
            "a table is older than its copy, which is used: the last save did not end, or an old table was put there. "
            "If that was meant, stop the broker and put it there again, without a copy",
            extra={"file": str(table.path), "copy": str(copy.path), "saves": table.saves, "saves_of_copy": copy.saves},
        )
        _repair(disk, table.path, copy.data)
        return copy
    _repair(disk, copy.path, table.data)
    return None


def _use_copy(disk: Disk, table: TableCopy, copy: TableCopy) -> None:
    what = "is missing" if table.state is CopyState.MISSING else "is damaged or was edited by hand"
    rejected = rejected_of(table.path)
    fix = f"; if that edit was meant, move it back from {rejected.name} and run `{ACCEPT_COMMAND}`"
    age = "" if copy.state is CopyState.INTACT else ", which may be older than the last change"
    log.error(
        f"a table {what}: its copy is used{age}{'' if table.state is CopyState.MISSING else fix}",
        extra={"file": str(table.path), "copy": str(copy.path), "reason": table.problem or table.state.value},
    )
    try:
        if table.state is CopyState.DAMAGED:
            disk.rename(table.path, rejected)
    except OSError as error:
        log.warning("rejected table not kept", extra={"file": str(table.path), "reason": error.strerror})
    _repair(disk, table.path, copy.data)


def rejected_of(path: Path) -> Path:
    return path.with_name(path.name + ".rejected")


def _repair(disk: Disk, path: Path, data: bytes) -> None:
    """The other copy is intact, so a full disk need not stop the start."""
    try:
        replace_all(disk, path, data)
    except OSError as error:
        log.warning("copy of a table not written", extra={"file": str(path), "reason": error.strerror})


def save_config(disk: Disk, path: Path, content: bytes) -> None:
    """Blocks for some syncs: tables are small and change rarely, or are saved by a timer in a thread."""
    disk.make_directory(path.parent)
    old = read_all(disk, path, CONFIG_BYTES_MAX)
    saves = _saves_of(old or b"")
    if old == with_checksum(content, saves) and disk.size(backup_of(path)) == len(old):
        return
    checked = with_checksum(content, saves + 1)
    replace_all(disk, backup_of(path), checked)
    replace_all(disk, path, checked)
    if old is None:
        _remember(disk, path)


# --- the list of tables ---


def listed_tables(disk: Disk, directory: Path) -> Sequence[str]:
    """The tables that were ever there. Nothing when the list is gone or damaged, which is reported."""
    copies = [read_copy(disk, path) for path in (directory / LIST_NAME, backup_of(directory / LIST_NAME))]
    for copy in copies:
        if copy.state is CopyState.DAMAGED:
            log.warning("list of tables is damaged", extra={"file": str(copy.path), "reason": copy.problem})
    value = next((copy.value for copy in copies if copy.is_usable), None)
    names = value.get("tables") if isinstance(value, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _remember(disk: Disk, path: Path) -> None:
    """Adds a table to the list. Without space it is added at the next start."""
    with _list_lock:
        names = listed_tables(disk, path.parent)
        if path.name not in names:
            try:
                write_list(disk, path.parent, [*names, path.name])
            except OSError as error:
                log.warning("list of tables not written", extra={"table": path.name, "reason": error.strerror})


def write_list(disk: Disk, directory: Path, names: Sequence[str]) -> None:
    checked = with_checksum(fastjson.emit({"tables": sorted(names)}))
    replace_all(disk, backup_of(directory / LIST_NAME), checked)
    replace_all(disk, directory / LIST_NAME, checked)
