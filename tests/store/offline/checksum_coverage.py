"""Which bytes of a record a check of the whole store covers; docs/data_files.md lists those that it cannot."""

from pathlib import Path

from ariane.store.commit_log.scan import list_files, walk_records
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.offline.annotate_record import annotate_record

UNCOVERED = ("flag", "sysFlag", "bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes",
             "preparedTransactionOffset")  # fmt: skip
COVERED_PROPERTIES = ("property TAGS", "property KEYS", "property UNIQ_KEY")


def covered_positions(layout: Layout) -> list[tuple[Path, int]]:
    """File and position of every byte of every record whose change cannot go unnoticed."""
    disk = RealDisk()
    found = []
    for record in walk_records(disk, list_files(disk, layout.commit_log)):
        for field in annotate_record(record.raw, record.view, record.position):
            if field.name in UNCOVERED or (field.name.startswith("property") and field.name not in COVERED_PROPERTIES):
                continue
            text = field.raw.rstrip(b"\x02")  # what ends a property may turn into a blank between two keys
            found += [(record.file.path, field.position + at) for at in range(len(text))]
    return found
