"""One table of the broker as a file: `config/topics.json`, `config/consumerOffset.json` and their like.

The bytes are what Apache's broker writes and reads. A save replaces the file atomically and keeps the one before it as
`.bak` (store/config_file.py), so a crash in the middle of a save costs at most the last change.
"""

from pathlib import Path

from ariane.store.config_file import load_config, save_config
from ariane.store.disk import Disk
from ariane.wire.body import JsonBody


class TableFile:
    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def load(self) -> object | None:
        """The parsed content; None when there is no file. StoreCorrupt when neither it nor its backup can be read."""
        return load_config(self._disk, self.path)

    def save(self, content: JsonBody | bytes) -> None:
        """Blocks for two small syncs: a table changes rarely, and its change must outlive the answer that tells it."""
        save_config(self._disk, self.path, content if isinstance(content, bytes) else content.to_bytes())
