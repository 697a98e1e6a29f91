"""Whether a run is begun is decided by what the disk has left before a broker would refuse messages."""

import shutil
from pathlib import Path

import pytest

from bench.disk_space import GB, NoRoom, check_room


@pytest.mark.parametrize(("used", "has_room"), [(10, True), (59, True), (61, False), (95, False)])
def test_a_run_needs_room_below_the_limit_of_apaches_broker(
    used: int, has_room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(total=100 * GB, used=used * GB, free=(100 - used) * GB)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    if has_room:
        check_room(25, tmp_path)
    else:
        with pytest.raises(NoRoom, match="set TMPDIR"):
            check_room(25, tmp_path)
