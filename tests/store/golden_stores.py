"""Stores that Apache RocketMQ 4.9.8 wrote, unpacked, and ways to damage them or to keep them locked."""

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ariane.store.layout import Layout

_GOLDEN = Path(__file__).parent.parent / "golden"
_HOLD = """
import sys
from pathlib import Path
from ariane.store.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def unpack(name: str, directory: Path) -> Layout:
    """`clean` after a clean stop, `killed` after kill -9."""
    with tarfile.open(_GOLDEN / f"apache-4.9.8-{name}-store.tar.gz") as tar:
        tar.extractall(directory, filter="data")
    return Layout.under(directory / "store")


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Turns one bit around; a second time turns it back."""
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


@contextmanager
def held_by_another_process(lock: Path) -> Iterator[int]:
    """The process that holds the lock; a lock of our own would not keep us out."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process.pid
        finally:
            process.stdin.close()
