"""The file `config/truncate.json`: what the next start of the store does to it before recovery.

    {"arianeCrc32":"...","to":81920,"epoch":7,"confirmed":79000,"wipe":false,"kept":false}

`to`: the log ends there then; with `wipe`, all files go and the log begins there. `epoch`: of the master whose log
decides it. `confirmed`: up to where messages are confirmed, as far as the writer knew. `kept`: what is cut was put in
quarantine; only then does anything change. The file is removed when the store is open again, so a crash repeats it.

There is one copy, replaced atomically: a table of a broker has two, since nothing else tells its content.
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ariane.errors import StoreCorrupt
from ariane.store.config.table_file import CopyState, read_copy, with_checksum
from ariane.store.disk import Disk, replace_all

FILE_NAME = "truncate.json"

_Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class TruncationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    to: _Offset
    epoch: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    confirmed: _Offset = 0
    wipe: bool = False
    kept: bool = False


def read_request(disk: Disk, config: Path) -> TruncationRequest | None:
    """None when there is none. StoreCorrupt when it is damaged: then nobody knows where the log has to end."""
    path = config / FILE_NAME
    copy = read_copy(disk, path)
    if copy.state is CopyState.MISSING:
        return None
    problem = copy.problem or "it has no checksum"
    if copy.state is CopyState.INTACT:
        try:
            return msgspec.convert(copy.value, TruncationRequest)
        except msgspec.ValidationError as error:
            problem = str(error)
    raise StoreCorrupt(
        f"{path}: {problem}. Remove it to open the store with its whole log; in a group the member then compares its "
        "log with the master's again"
    )


def write_request(disk: Disk, config: Path, request: TruncationRequest) -> None:
    """Durable when it returns."""
    replace_all(disk, config / FILE_NAME, with_checksum(msgspec.json.encode(request)))


def remove_request(disk: Disk, config: Path) -> None:
    if disk.size(config / FILE_NAME) is not None:
        disk.remove(config / FILE_NAME)
        disk.sync_directory(config)
