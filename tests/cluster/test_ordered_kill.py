"""A broker is killed under an ordered group of four: no queue is handled by two members at once, no offset goes back.

`ARIANE_ORDERED_KILLS` says how often.
"""

import os
from pathlib import Path

from tests.chaos.kills import run
from tests.chaos.traffic import kinds

KILLS = int(os.environ.get("ARIANE_ORDERED_KILLS", "3"))


async def test_killing_the_broker_makes_no_two_members_work_on_one_queue_and_moves_no_offset_back(
    tmp_path: Path,
) -> None:
    (ordered,) = traffic = kinds("ordered")
    await run(tmp_path, KILLS, traffic)
    assert len(ordered.history.acknowledged) > 50 * KILLS
    assert ordered.history.violations() == {}
