"""The small files checked: checkpoint and config/*.json."""

from pathlib import Path

from ariane.errors import BodyError
from ariane.store.checkpoint import CHECKPOINT_BYTES, decode_checkpoint
from ariane.store.disk import Disk, read_all
from ariane.store.layout import Layout
from ariane.store.verify_report import Cure, Report
from ariane.wire.fastjson import SIZE_MAX, parse


def check_checkpoint(report: Report, disk: Disk, layout: Layout, log_end: int) -> None:
    """A checkpoint may lag behind the log, never the other way round."""
    data = read_all(disk, layout.checkpoint, CHECKPOINT_BYTES + 1)
    if data is None:
        report.note("there is no checkpoint: the next start walks the whole log")
        return
    if len(data) != CHECKPOINT_BYTES:
        report.fault(layout.checkpoint, 0, f"{len(data)} bytes, not {CHECKPOINT_BYTES}", Cure.CHECKPOINT)
    checkpoint = decode_checkpoint(data)
    if checkpoint.flushed_to > log_end:
        what = f"the log was durable up to {checkpoint.flushed_to}, its last record ends at {log_end}"
        report.fault(layout.checkpoint, 0, what, Cure.RESTORE)
    newest_ms = report.summary.newest_ms
    if newest_ms is not None and checkpoint.physic_timestamp_ms > newest_ms:
        what = f"a durable message of {checkpoint.physic_timestamp_ms}, the newest in the log is of {newest_ms}"
        report.fault(layout.checkpoint, 0, what, Cure.RESTORE)


def check_config(report: Report, disk: Disk, directory: Path) -> None:
    for name in disk.names(directory):
        if name.endswith(".json"):
            _check_json(report, disk, directory / name)


def _check_json(report: Report, disk: Disk, path: Path) -> None:
    data = read_all(disk, path, SIZE_MAX + 1)
    if not data:
        report.note(f"{report.name(path)} is empty: a broker reads {path.name}.bak in its place")
        return
    try:
        parse(data)
    except BodyError as error:
        report.fault(path, 0, str(error), Cure.CONFIG)


def known_topics(disk: Disk, directory: Path) -> frozenset[str] | None:
    """The topics of config/topics.json; None when it cannot tell."""
    try:
        tables = parse(read_all(disk, directory / "topics.json", SIZE_MAX) or b"null")
    except BodyError:
        return None
    topics = tables.get("topicConfigTable") if isinstance(tables, dict) else None
    return frozenset(topics) if isinstance(topics, dict) else None
