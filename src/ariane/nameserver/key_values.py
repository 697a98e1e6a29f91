"""Namespaced key-value pairs (the KV configuration), persisted in Apache's `kvConfig.json`.

    {"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4;broker-b:4"}}}

The table is replaced, never edited (copy on write): a change is made in a copy, which is saved and then published. So
what `get` returns is on disk, and a failed save changes nothing.

Saving is synchronous, on the event loop, on purpose: the file has a few kilobytes and changes only when an
administrator runs a command, while brokers tolerate two minutes without a response. In return a change is either
acknowledged and durable or refused, and changes cannot be reordered.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ariane.errors import RequestFailed, SettingsError
from ariane.wire.codes import ResponseCode

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace that clients use: topic to `broker:queues;broker:queues`, the queues of an ordered topic."""

NAME_LENGTH_MAX = 255  # of a namespace or a key; a topic name has at most 127 characters
VALUE_LENGTH_MAX = 8_192  # an order conf over some 400 brokers
FILE_BYTES_MAX = 4 * 1024 * 1024  # a save takes milliseconds; enough for some 50,000 ordered topics

# Control characters would break log lines and tables; lone surrogates cannot be encoded as UTF-8.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

Table = Mapping[str, Mapping[str, str]]


class _File(msgspec.Struct, rename="camel"):
    config_table: dict[str, dict[str, str]]


class KeyValues:
    """The pairs, in memory and, unless `path` is None, in a file."""

    def __init__(self, path: Path | None = None) -> None:
        """Reads the file. A missing file is an empty table; an unreadable or damaged one is a SettingsError."""
        self._path = path
        self._table: Table = {} if path is None else _load(path)

    @property
    def table(self) -> Table:
        """All pairs, by namespace."""
        return self._table

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All pairs of a namespace, or None when it has none. A snapshot: later changes do not affect it."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Sets a pair and saves it. RequestFailed, with nothing changed, when it is invalid or cannot be saved."""
        problem = _pair_problem(namespace, key, value)
        if problem is not None:
            raise _system_error(problem)
        if self.get(namespace, key) != value:
            self._replace(namespace, {**self._table.get(namespace, {}), key: value})

    def delete(self, namespace: str, key: str) -> bool:
        """Removes a pair and saves; False when there was none. The last pair of a namespace removes the namespace."""
        if self.get(namespace, key) is None:
            return False
        self._replace(namespace, {other: value for other, value in self._table[namespace].items() if other != key})
        return True

    def _replace(self, namespace: str, pairs: Mapping[str, str]) -> None:
        table = {**self._table, namespace: pairs}
        if not pairs:
            del table[namespace]
        content = _encode(table)
        if self._path is not None:
            _save(self._path, content)
        self._table = table


def _load(path: Path) -> Table:
    try:
        content = _read(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"cannot read the key-value file {path}: {error.strerror}") from error
    try:
        table = msgspec.json.decode(content, type=_File).config_table
    except (ValueError, RecursionError) as error:  # what msgspec raises for invalid UTF-8 and deep nesting
        raise _corrupt(path, f"it is not Apache's kvConfig.json ({error})") from error
    for namespace, pairs in table.items():
        for key, value in pairs.items():
            problem = _pair_problem(namespace, key, value)
            if problem is not None:
                raise _corrupt(path, problem)
    return table


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise _corrupt(path, f"it has more than {FILE_BYTES_MAX} bytes")
    return content


def _encode(table: Table) -> bytes:
    content = msgspec.json.encode({"configTable": table})
    if len(content) > FILE_BYTES_MAX:
        raise _system_error(
            f"the pairs would take {len(content)} bytes, at most {FILE_BYTES_MAX} are allowed; delete some"
        )
    return content


def _save(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _replace_file(_backup(path), path.read_bytes())
        _replace_file(path, content)
    except OSError as error:
        hint = "check the disk's free space and the directory's permissions, then repeat the command"
        raise _system_error(f"cannot save the key-value file {path}: {error.strerror}; {hint}") from error


def _replace_file(path: Path, content: bytes) -> None:
    """Replaces the file atomically, also across a power failure. A leftover `.tmp` is overwritten."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """A rename is durable only after an fsync of its directory. Windows cannot open directories, and needs no fsync."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _pair_problem(namespace: str, key: str, value: str) -> str | None:
    for kind, text, length_max in (
        ("namespace", namespace, NAME_LENGTH_MAX),
        ("key", key, NAME_LENGTH_MAX),
        ("value", value, VALUE_LENGTH_MAX),
    ):
        if not text and kind != "value":
            return f"the {kind} is empty"
        if len(text) > length_max:
            return f"the {kind} has {len(text)} characters, at most {length_max} are allowed"
        if _FORBIDDEN.search(text):
            return f"the {kind} {text[:40]!r} has a control character"
    return None


def _system_error(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.SYSTEM_ERROR, remark)


def _corrupt(path: Path, cause: str) -> SettingsError:
    hint = f"copy {_backup(path).name} over it, or remove it to start with no pairs"
    return SettingsError(f"the key-value file {path} is damaged: {cause}; {hint}")
