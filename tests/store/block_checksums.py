"""Checks the block checksums of a store without the other checks: fast enough to run after every step of a test."""

from pathlib import Path

from ariane.store.commit_log.scan import list_files
from ariane.store.disk import Disk
from ariane.store.layout import Layout
from ariane.store.offline.verify_log import ChecksumCheck, FactCollector
from ariane.store.offline.verify_report import Report
from tests.store.stores import ROOT

NO_RECORDS = FactCollector().take()


def check_block_checksums(disk: Disk, log_end: int = 0, root: Path = ROOT) -> Report:
    """`log_end`: up to where the checksums should reach, if the test knows."""
    layout = Layout.under(root)
    report = Report(root, is_unclean=disk.size(layout.abort) is not None)
    check = ChecksumCheck(report, disk, layout)
    files = list_files(disk, layout.commit_log)
    for file in files:
        check.compare(file, NO_RECORDS)
    check.finish(files[0].base if files else 0, log_end)
    return report


def is_covered(disk: Disk, log_end: int, root: Path = ROOT) -> bool:
    """Whether every byte of the log has a checksum, and every checksum is right."""
    report = check_block_checksums(disk, log_end, root)
    return report.is_sound and report.summary.summed_bytes == report.summary.log_bytes
