"""Whether the files of a run are what their names say: whole, of one size, one after the other."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from ariane.store.disk import Disk
from ariane.store.layout import offset_name
from ariane.store.scan import DataFile
from ariane.store.verify_report import Cure, Report


def check_run(report: Report, files: Sequence[DataFile], *, unit_bytes: int = 1) -> None:
    """Sizes, names and gaps. The size that most files have is the right one: a single cut one may be the first."""
    file_bytes = usual_size(files)
    for file in files:
        if not file.size:
            report.unfinished(file.path, 0, "an empty file", Cure.FILES)
        elif file.size != file_bytes:
            report.fault(file.path, 0, f"{file.size} bytes, the other files have {file_bytes}", Cure.FILES)
        elif file.size % unit_bytes:
            report.fault(file.path, 0, f"{file.size} bytes are no multiple of {unit_bytes}", Cure.FILES)
        elif file.base % file_bytes:
            report.fault(file.path, 0, f"a name that is no multiple of the file size {file_bytes}", Cure.FILES)
    for before, after in pairwise(files):
        if after.base != before.base + file_bytes:
            report.fault(
                after.path,
                0,
                f"it does not follow {before.path.name}: {offset_name(before.base + file_bytes)} is missing",
                Cure.FILES,
            )


def usual_size(files: Iterable[DataFile]) -> int:
    """The size that most files have; 0 when there is none that has one."""
    sizes = Counter(file.size for file in files if file.size)
    return sizes.most_common(1)[0][0] if sizes else 0


def check_names(report: Report, disk: Disk, directory: Path, files: Sequence[DataFile]) -> None:
    """Apache's broker refuses to start on a file that does not belong, ours passes over it."""
    known = {file.path.name for file in files}
    odd = [name for name in disk.names(directory) if name not in known]
    if odd:
        report.note(f"{report.name(directory)} holds files that no store has: {', '.join(odd[:5])}")
