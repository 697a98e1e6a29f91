"""How far a replay has come, in a directory: which messages it has, pinned by its first run, and where each lane is.

    progress/replay.json     which messages go where; a run with other options is refused
    progress/lane-3.json     the next offset of lane 3 to send, and how many messages it has sent

A lane's file is replaced after brokers have acknowledged what it counts, never before: a run that is killed sends some
messages again, and loses none.
"""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from ariane.errors import SettingsError, StoreCorrupt, StoreError
from ariane.spark.jobs.replay_options import ReplayOptions
from ariane.store.disk import RealDisk, replace_all

T = TypeVar("T", bound=msgspec.Struct)


class Lane(msgspec.Struct, frozen=True, array_like=True):
    """One queue's messages from `first` on and before `end`: they are sent in their order, by one task."""

    number: int
    broker: str | None
    queue_id: int
    first: int
    end: int


class Replay(msgspec.Struct, frozen=True):
    identity: dict[str, str | None]
    lanes: list[Lane]
    commits: int | None = None
    """Of the archive, that it had when the replay began."""


class LaneProgress(msgspec.Struct, frozen=True):
    next: int
    sent: int = 0


class ReplayProgress:
    """Without a directory nothing is kept, and every run begins anew."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path).absolute()

    def begun(self, options: ReplayOptions) -> Replay | None:
        """What the first run has pinned; SettingsError when it was another replay."""
        if self._path is None:
            return None
        known = _read(self._path / "replay.json", Replay)
        if known is not None and known.identity != options.identity():
            differs = [name for name, value in options.identity().items() if known.identity.get(name) != value]
            raise SettingsError(
                f"{self._path} has the progress of another replay, with other {', '.join(differs)}: give another "
                "progressPath, or remove it"
            )
        return known

    def begin(self, replay: Replay) -> None:
        if self._path is not None:
            self._path.mkdir(parents=True, exist_ok=True)
            replace_all(RealDisk(), self._path / "replay.json", msgspec.json.encode(replay))

    def of(self, lane: Lane) -> LaneProgress:
        known = None if self._path is None else _read(self._path / f"lane-{lane.number}.json", LaneProgress)
        return known or LaneProgress(lane.first)

    def note(self, lane: Lane, reached: LaneProgress) -> None:
        """Not synced: after a power cut, too, messages are only sent again."""
        if self._path is None:
            return
        path = self._path / f"lane-{lane.number}.json"
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_bytes(msgspec.json.encode(reached))
        beside.replace(path)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"{path} is no progress of a replay ({error}): remove the directory to begin anew") from None
