"""Room on the disk for the stores of a run: a broker that has too little refuses messages."""

import shutil
import tempfile
from pathlib import Path

USED_SHARE_MAX = 0.85
"""Beyond this Apache's broker deletes its oldest files at once; at 0.9 it refuses messages."""
GB = 1000**3


class NoRoom(Exception):
    """The disk is too full to measure; the text says how much is missing."""


def check_room(needed_gb: int, directory: Path | None = None) -> None:
    directory = directory or Path(tempfile.gettempdir())
    disk = shutil.disk_usage(directory)
    room_gb = (USED_SHARE_MAX * (disk.used + disk.free) - disk.used) / GB
    if room_gb < needed_gb:
        raise NoRoom(
            f"{directory} has {max(room_gb, 0):.0f} GB until its disk is {USED_SHARE_MAX:.0%} full, and the stores of "
            f"this part need {needed_gb} GB: free some, or set TMPDIR to a directory of another disk"
        )
