"""JSON files under `config/`, each with a `.bak` copy of its previous content.

Saving first writes the old content to `.bak` and then replaces the file, each atomically: after any crash at least one
of the two is intact. Loading reads the file, or `.bak` when the file is missing, empty or unreadable.
"""

import logging
from pathlib import Path

from ariane.errors import StoreCorrupt, WireError
from ariane.store.disk import Disk, read_all, replace_all
from ariane.wire.json import fastjson

log = logging.getLogger(__name__)

CONFIG_BYTES_MAX = 256 * 1024 * 1024


def load_config(disk: Disk, path: Path) -> object | None:
    """The parsed table; None when there is neither a file nor a backup. StoreCorrupt when neither can be read."""
    errors = []
    for candidate in (path, _backup(path)):
        data = read_all(disk, candidate, CONFIG_BYTES_MAX)
        if not data:
            continue
        try:
            return fastjson.parse(data)
        except WireError as error:
            errors.append(f"{candidate}: {error}")
            log.error("configuration not readable", extra={"file": str(candidate), "reason": str(error)})  # noqa: TRY400
    if errors:
        raise StoreCorrupt(f"{'; '.join(errors)}: restore one of them, or remove both to begin with an empty table")
    return None


def save_config(disk: Disk, path: Path, content: bytes) -> None:
    """Blocks for a sync or two: tables are small and change rarely, or are saved by a timer in a thread."""
    disk.make_directory(path.parent)
    old = read_all(disk, path, CONFIG_BYTES_MAX)
    if old == content:
        return
    if old:
        replace_all(disk, _backup(path), old)
    replace_all(disk, path, content)


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")
