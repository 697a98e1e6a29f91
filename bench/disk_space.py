"""Room on the disk for the stores of a run: a broker that has too little refuses messages."""

import shutil
import tempfile
from pathlib import Path

NEEDED_BYTES = 25 * 1000**3
"""Of all systems of a scenario at its end: each keeps what it got in all rounds."""
QUICK_NEEDED_BYTES = 6 * 1000**3
USED_SHARE_MAX = 0.85
"""Beyond this Apache's broker deletes its oldest files at once; at 0.9 it refuses messages."""


class NoRoom(Exception):
    """The disk is too full to measure; the text says how much is missing."""


def check_room(is_quick: bool, directory: Path | None = None) -> None:
    directory = directory or Path(tempfile.gettempdir())
    needed = QUICK_NEEDED_BYTES if is_quick else NEEDED_BYTES
    disk = shutil.disk_usage(directory)
    room = round(USED_SHARE_MAX * (disk.used + disk.free)) - disk.used
    if room < needed:
        raise NoRoom(
            f"{directory} has {max(room, 0) / 1e9:.0f} GB until its disk is {USED_SHARE_MAX:.0%} full, and the stores "
            f"of a scenario need {needed / 1e9:.0f} GB: free some, or set TMPDIR to a directory of another disk"
        )
