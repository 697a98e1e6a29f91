"""Rows of one task as one Parquet file of a lake table, which counts when a commit of the table names it."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import time

import pyarrow as pa
import pyarrow.parquet as pq

from ariane.store.disk import RealDisk


@dataclass(frozen=True)
class WrittenFile:
    location: str
    """As the table names it."""
    path: Path
    size: int
    rows: int
    written_ms: int


def write_file(location: str, path: Path, batches: Iterable[pa.RecordBatch], compression: str) -> WrittenFile | None:
    """None without rows. On the disk when it returns: a commit must not name a file that a power cut takes back."""
    make_directory(path.parent)
    rows, writer = 0, None
    try:
        with path.open("xb") as file:
            for batch in batches:
                if writer is None:
                    writer = pq.ParquetWriter(file, batch.schema, compression=compression)
                writer.write_batch(batch)
                rows += batch.num_rows
            if writer is not None:
                writer.close()
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if not rows:
        path.unlink()
        return None
    RealDisk().sync_directory(path.parent)
    return WrittenFile(location, path, size, rows, int(time() * 1000))


def make_directory(directory: Path) -> None:
    """With its parents; the names of all that are new are on the disk when it returns."""
    new = [one for one in (directory, *directory.parents) if not one.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for one in new:
        RealDisk().sync_directory(one.parent)


def remove_files(files: Iterable[WrittenFile]) -> None:
    """Of a batch that will not be committed."""
    for file in files:
        file.path.unlink(missing_ok=True)
