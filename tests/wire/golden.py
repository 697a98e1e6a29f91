"""Stores that a real Apache RocketMQ 4.9.8 wrote, read into memory. See tests/golden/README.md."""

import gzip
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_GOLDEN = Path(__file__).parent.parent / "golden"

FILE_BYTES = 262144


class GoldenStore(NamedTuple):
    commit_log: bytes
    """All commit log files back to back; the first starts at physical offset 0, so positions are physical offsets."""

    messages: tuple[dict[str, Any], ...]
    """What Java's own client decoded."""


@cache
def golden_store(name: str) -> GoldenStore:
    """`clean` after a clean stop, `killed` after kill -9."""
    return GoldenStore(
        commit_log=_commit_log(_GOLDEN / f"apache-4.9.8-{name}-store.tar.gz"),
        messages=_manifest(_GOLDEN / f"apache-4.9.8-{name}-manifest.jsonl.gz"),
    )


def _commit_log(archive: Path) -> bytes:
    with tarfile.open(archive) as tar:
        names = sorted(name for name in tar.getnames() if name.startswith("store/commitlog/"))
        assert [int(Path(name).name) for name in names] == [FILE_BYTES * number for number in range(len(names))]
        return b"".join(_read(tar, name) for name in names)


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.extractfile(name)
    assert member is not None
    return member.read()


def _manifest(path: Path) -> tuple[dict[str, Any], ...]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)
