"""A group under random faults: every invariant holds for every seed, and chance finds most rules that are missing.

ARIANE_SEEDS runs more than the 1,500 of every `make test`; `make chaos` does. ARIANE_SEED runs one, with its events.
"""

import os
from collections.abc import Iterator

import pytest

from ariane.replication.group.rules import ALL_RULES, Rules
from tests.simulation.group_world import Breach, Result, World, run

SEEDS = int(os.environ.get("ARIANE_SEEDS", "1500"))
PARTS = 10


def seeds(part: int) -> Iterator[int]:
    one = os.environ.get("ARIANE_SEED")
    yield from range(part, SEEDS, PARTS) if one is None else [int(one)]


@pytest.mark.parametrize("part", range(PARTS))
def test_no_invariant_is_broken_whatever_the_faults(part: int) -> None:
    results = [run(seed, trace="ARIANE_SEED" in os.environ) for seed in seeds(part)]
    assert sum(result.acks for result in results) > 100 * len(results)
    assert sum(result.elections for result in results) > len(results)
    if len(results) > 50:
        assert sum(result.goes_on for result in results) > 0.6 * len(results)  # the others are frozen, as they should


def test_nor_in_a_group_of_two() -> None:
    results = [run(seed, members=2) for seed in range(SEEDS // 20)]
    assert sum(result.acks for result in results) > 100 * len(results)


FOUND = {
    "union_of_sets": 20,
    "keep_proposal": 141,
    "compare_revision": 1,
    "incarnations": 16,
    "truncate_first": 3,
    "join_past_start": 268,
    "elect_in_sync": 0,
    "unclean_leaves": 16,
    "keep_mark": 76,
    "step_down_first": 20,
    "grant_to_run": 0,
    "ack_of_known": 2,
    "ack_bounded": 2,
    "fail_waiters": 126,
}
"""The first seed that fails without the rule. docs/decisions/fail-over.md has what each is for; scenarios in
tests/replication/group find the others."""

BY_SCENARIO = {"ack_of_epoch", "ack_of_connection", "current_epoch", "keep_minimum"}


@pytest.mark.parametrize(("rule", "seed"), FOUND.items())
def test_without_a_rule_a_seed_breaks_an_invariant(rule: str, seed: int) -> None:
    with pytest.raises(Breach, match=rf"seed {seed} at .*: I\d"):
        run(seed, Rules(**{rule: False}))


def test_every_rule_is_found_by_chance_or_by_a_scenario() -> None:
    assert set(Rules.__dataclass_fields__) == set(FOUND) | BY_SCENARIO


def test_a_seed_repeats_its_run_event_by_event() -> None:
    def events(seed: int) -> list[str]:
        world = World(seed, ALL_RULES, trace=True)
        world.start()
        world.faults(10)
        world.run_until(10)
        assert world.trace is not None
        return world.trace

    assert events(5) == events(5)
    assert events(5) != events(6)


def test_a_run_counts_what_it_did() -> None:
    assert run(1, seconds=5) == run(1, seconds=5)
    assert isinstance(run(1, seconds=5), Result)
