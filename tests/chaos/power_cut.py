"""Power cuts on a real ext4: what was acknowledged before the cut must be there after it.

    python -m tests.chaos.power_cut [CUTS]          as root

    image file -- loop device -- ext4 -- a writer with SYNC_FLUSH
         \\
          copy -- loop device -- ext4 -- recovery, and the count of what survived

The image holds what has reached "the disk"; what only the page cache of the upper file system has is lost in the copy,
as in a power cut. The writer is stopped while the image is copied, so that the copy is of one moment; its syncs that
were under way are finished by then, those it had not begun are not. It stays stopped while the copy is looked at: how
much it writes, and whether the image holds it, does not depend on how long that takes.
"""

import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ariane.clock import Clock
from ariane.store.message_store import MessageStore
from ariane.store.settings import FlushDiskType
from tests.store.stores import HOST
from tests.store.writer import settings_of, survivors

CUTS = 20
IMAGE_BYTES = 512 * 1024 * 1024
NOT_ALLOWED = 3
PROJECT = Path(__file__).parent.parent.parent


class NotAllowed(Exception):
    """This machine, or this user, may not do what a fault needs: mount, or make a network namespace."""


def run(*command: str | Path) -> str:
    """What it printed; NotAllowed with its error if it failed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise NotAllowed(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def mounted(image: Path, directory: Path) -> Iterator[Path]:
    """`-o loop` detaches the loop device with the mount."""
    directory.mkdir(exist_ok=True)
    run("mount", "-o", "loop", image, directory)
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


class Acknowledgements(threading.Thread):
    """Reads what the writer says, all the time: it would wait for us otherwise."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(daemon=True)
        self._process = process
        self.count = 0
        """How many messages, from 0 on, are acknowledged. Chunks may be reported out of order: gaps end the count."""
        self.began = threading.Event()
        self._ahead: dict[int, int] = {}

    def run(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            first, last = line.split()
            if first != b"from":
                self._ahead[int(first)] = int(last) + 1
                while self.count in self._ahead:
                    self.count = self._ahead.pop(self.count)
                self.began.set()


@contextmanager
def writer(root: Path, seed: int) -> Iterator[tuple["subprocess.Popen[bytes]", Acknowledgements]]:
    command = [sys.executable, "-m", "tests.store.writer", str(root), FlushDiskType.SYNC.value, str(seed)]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE) as process:
        acknowledgements = Acknowledgements(process)
        acknowledgements.start()
        try:
            assert acknowledgements.began.wait(60), "the writer acknowledges nothing"
            yield process, acknowledgements
        finally:
            process.kill()
            acknowledgements.join()


@contextmanager
def stopped(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        while not _is_stopped(process.pid):
            assert process.poll() is None, "the writer ended by itself: above is why"
            time.sleep(0.001)
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def _is_stopped(process: int) -> bool:
    """Every thread, also one that was in the middle of a sync."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{process}/task").glob("*/stat")]
    return set(states) == {"T"}


def recovered(directory: Path) -> int:
    """How many messages the store in a copy holds, after a start of "another machine"."""
    settings = settings_of(directory / "store", FlushDiskType.SYNC)
    store = MessageStore.open(settings, Clock(), HOST, boot="after the cut")
    try:
        return survivors(store)
    finally:
        store.close()


def cut_often(workshop: Path, cuts: int) -> int:
    """Prints a line a cut; how many of them lost something."""
    image, copy, seed = workshop / "image", workshop / "copy", random.randrange(2**32)
    rng = random.Random(seed)
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    run("mkfs.ext4", "-q", "-F", image)
    losses = 0
    print(f"seed {seed}\n{'cut':>4}{'acknowledged':>14}{'survived':>10}{'lost':>6}")
    with mounted(image, workshop / "live") as live, writer(live / "store", seed) as (process, acknowledgements):
        for number in range(1, cuts + 1):
            time.sleep(rng.uniform(0.01, 0.3))  # the moment of the cut
            promised = acknowledgements.count
            with stopped(process):
                run("cp", "--sparse=always", image, copy)
                with mounted(copy, workshop / "after") as after:
                    found = recovered(after)
            losses += found < promised
            print(f"{number:4}{promised:14}{found:10}{max(0, promised - found):6}", flush=True)
    return losses


def main(cuts: int) -> int:
    with tempfile.TemporaryDirectory(prefix="ariane-power-cut-") as workshop:
        try:
            losses = cut_often(Path(workshop), cuts)
        except NotAllowed as error:
            print(f"no power cuts here: loop mounts of ext4 need root and loop devices ({error})")
            return NOT_ALLOWED
    print(f"{cuts} cuts, {losses} with a loss")
    return 1 if losses else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else CUTS))
