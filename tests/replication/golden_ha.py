"""The recorded replication streams of Apache 4.9.7 (tests/golden/ha)."""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "ha"
FILE_BYTES = 65_536
STREAMS = ("ha-fresh", "ha-resume")


@dataclass(frozen=True)
class Recording:
    name: str
    to_slave: bytes
    to_master: bytes
    facts: dict[str, Any]

    @property
    def reports(self) -> list[int]:
        return [number for (number,) in struct.iter_unpack(">q", self.to_master)]

    @property
    def frames(self) -> list[tuple[int, bytes]]:
        """Offset and body, decoded here without the code under test."""
        frames, at = [], 0
        while at < len(self.to_slave):
            offset, size = struct.unpack_from(">qi", self.to_slave, at)
            frames.append((offset, self.to_slave[at + 12 : at + 12 + size]))
            at += 12 + size
        return frames

    @property
    def log(self) -> bytes:
        """All bytes of the log that the stream carries."""
        return b"".join(body for _, body in self.frames)


def recording(name: str) -> Recording:
    facts = json.loads((GOLDEN / "facts.json").read_text())[name]
    to_slave, to_master = (
        (GOLDEN / f"{name}.{way}.bin").read_bytes() for way in ("master-to-slave", "slave-to-master")
    )
    return Recording(name, to_slave, to_master, facts)
