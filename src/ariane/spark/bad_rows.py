"""Bad records kept apart: one Parquet file for each task that met some, in the directory of the option badRecordsPath.

The file's name says which part of which queue or log the task read, so a task or a micro-batch that Spark repeats
replaces its own file: every bad record is there once. A file appears when its task is done, and whole.
"""

import hashlib
import re
from types import TracebackType
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ariane.arrow.schema import COLUMNS
from ariane.errors import SettingsError

COORDINATES = ("topic", "brokerName", "queueId", "queueOffset", "physicalOffset", "msgId", "storeTimestamp")
SCHEMA = pa.schema(
    [*(pa.field(name, COLUMNS[name]) for name in (*COORDINATES, "body")), pa.field("reason", pa.string())]
)
BODY_BYTES_MAX = 4 * 1024 * 1024
"""What is kept of one record: damage can be as long as a log."""
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")


class BadRows:
    """For one task: rows are added while it reads, and the file gets its name at the end."""

    def __init__(self, path: str, place: str) -> None:
        self._files, self._directory = _filesystem(path)
        digest = hashlib.blake2s(place.encode(), digest_size=6).hexdigest()
        self._name = f"bad-{_NOT_IN_NAMES.sub('_', place)[-120:]}-{digest}.parquet"
        self._draft = f"{self._directory}/.{self._name}.{uuid4().hex}"
        self._writer: pq.ParquetWriter | None = None
        self.count = 0

    def add(self, rows: list[dict[str, Any]]) -> None:
        if self._writer is None:
            self._files.create_dir(self._directory, recursive=True)
            self._writer = pq.ParquetWriter(self._draft, SCHEMA, filesystem=self._files, compression="zstd")
        self._writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
        self.count += len(rows)

    def __enter__(self) -> "BadRows":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        self._writer.close()
        if kind is None:
            self._files.move(self._draft, f"{self._directory}/{self._name}")
        else:  # the task failed, or nobody wanted the rest of it: whoever repeats it writes the file
            self._files.delete_file(self._draft)


def _filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """A directory of this machine, or an address such as s3://bucket/bad that pyarrow knows the file system of."""
    if "://" not in path:
        return fs.LocalFileSystem(), path.rstrip("/")
    try:
        files, directory = fs.FileSystem.from_uri(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SettingsError(f"option badRecordsPath is {path[:80]!r}, which cannot be written to: {error}") from None
    return files, directory.rstrip("/")
