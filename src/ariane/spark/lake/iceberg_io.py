"""File IO for pyiceberg that syncs manifests and metadata before the catalog names them, as data files are.

pyiceberg's own writer leaves that to the operating system. A power cut soon after a commit could then leave a catalog
that names a missing file, and with it an unreadable table.
"""

import os
from io import BufferedWriter, FileIO
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from ariane.spark.lake.base import make_directory
from ariane.store.disk import RealDisk


class SyncedFileIO(PyArrowFileIO):
    """Catalogs load it by its name, the property `py-io-impl`."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return SyncedFile(location, path, self.fs_by_scheme(scheme, netloc))


class SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> "SyncedStream":
        path = Path(self._path)
        make_directory(path.parent)
        return SyncedStream(FileIO(path, "wb" if overwrite else "xb"), path.parent)


class SyncedStream(BufferedWriter):
    def __init__(self, raw: FileIO, directory: Path) -> None:
        super().__init__(raw)
        self._directory = directory

    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        super().close()
        RealDisk().sync_directory(self._directory)
