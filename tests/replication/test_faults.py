"""A few faults of a SYNC_MASTER and its slave on loopback, and what the slave has when the master is gone.

`make chaos` has many more, in network namespaces and on full disks: `python -m tests.chaos.replication`.
"""

from pathlib import Path

from tests.chaos.network import Loopback
from tests.chaos.replicated_history import violations
from tests.chaos.replication import FIRST_SAFE, run_round
from tests.chaos.replication_faults import FAULTS, end_master_while_slaves_are_down

NAMES = ("kill -9 of a slave", "kill -9 of the master", "a slave paused, beyond slaveTimeout", "a slave emptied")


async def test_no_message_with_send_ok_is_missing_at_the_slave_that_is_left(tmp_path: Path) -> None:
    faults = [next(fault for fault in FAULTS if fault.name == name) for name in NAMES]
    history, _ = await run_round(tmp_path, Loopback(), 1, faults, seed=1, ending=end_master_while_slaves_are_down)
    assert violations(history) == {}
    assert len(history.safe) >= FIRST_SAFE
    assert history.statuses["SLAVE_NOT_AVAILABLE"] > 0
    assert len(history.alone) >= len(history.safe)


async def test_the_same_check_finds_what_an_async_master_has_acknowledged_alone(tmp_path: Path) -> None:
    ending = end_master_while_slaves_are_down
    history, _ = await run_round(tmp_path, Loopback(), 1, [], seed=1, ending=ending, role="ASYNC_MASTER")
    assert violations(history).keys() == {"missing"}
