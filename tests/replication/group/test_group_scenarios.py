"""Scenarios of a group that chance seldom makes: each step of a promotion and of a truncation, late acknowledgements,
unanswered changes, orders of an operator; and how long writes stop. On the simulated world of tests/simulation."""

import pytest

from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.group.rules import ALL_RULES, GroupSettings, Rules
from ariane.replication.group.state import State
from ariane.replication.record import Order
from tests.simulation.group_world import Breach, Node, Odds, World

SETTINGS = GroupSettings(min_in_sync=2, lease_s=3)


def started(
    rules: Rules = ALL_RULES, settings: GroupSettings = SETTINGS, members: int = 3, seed: int = 1
) -> tuple[World, Node, list[Node]]:
    """A group whose members are all in sync, its master, and the others."""
    world = World(seed, rules, odds=Odds(), settings=settings, members=members)
    world.start()
    world.run_until_true(lambda: world.record is not None and len(world.record.in_sync) == members)
    world.run_until_true(lambda: world.leader is not None)
    world.run_until(world.now + 2)
    assert world.leader is not None
    return world, world.leader, [node for node in world.nodes if node is not world.leader]


def settle(world: World) -> None:
    world.heal()
    world.run_until(world.now + 20)
    world.has_producers = False
    world.run_until(world.now + 2)
    assert world.check_quiet()


# --- how long writes stop ---


def test_a_master_whose_process_dies_is_replaced_within_half_a_second() -> None:
    world, master, _ = started()
    master.crash()
    assert world.run_until_true(lambda: world.leader is not None) < 0.6
    settle(world)


def test_a_master_that_is_stopped_gives_its_lease_back() -> None:
    world, master, _ = started()
    master.feed(on.Stop())
    assert not master.can_write
    world.run_until(world.now + 0.01)
    assert len(world.meta.read("/ariane/v1/sim/group/member/").keys) == 2
    master.crash()
    assert world.run_until_true(lambda: world.leader is not None) < 0.6
    settle(world)


def test_a_master_whose_machine_vanishes_is_replaced_after_its_lease() -> None:
    world, master, others = started()
    world.cut_off(master, meta=True)
    assert 2 < world.run_until_true(lambda: any(node.can_write for node in others)) < 4.5
    settle(world)


def test_etcds_leader_and_the_master_lost_together_cost_another_lease() -> None:
    world, master, others = started()
    world.cut_off(master, meta=True)
    world.later(2.4, lambda: world.meta.renew_all(world.now))
    assert 4 < world.run_until_true(lambda: any(node.can_write for node in others)) < 7


@pytest.mark.parametrize("silence", [1, 60])
def test_without_etcd_writes_go_on_while_all_members_are_well(silence: int) -> None:
    world, master, _ = started()
    world.cut_meta(*world.nodes)
    acks = world.watcher.acks
    end = world.now + silence
    while world.now < end:
        world.run_until(world.now + 0.25)
        assert master.can_write
    assert world.watcher.acks > acks
    settle(world)


def test_without_etcd_and_without_one_member_the_master_stops_within_a_lease() -> None:
    world, master, others = started()
    world.cut_meta(*world.nodes)
    others[0].crash()
    assert world.run_until_true(lambda: not master.can_write) <= 3.2
    assert master.group is not None
    assert master.group.state is State.FENCED
    record = world.record
    world.restore()
    world.run_until_true(lambda: master.can_write)
    assert world.record is not None
    assert record is not None
    assert world.record.epoch == record.epoch  # nobody else was elected: it leads on
    settle(world)


def test_a_master_alone_in_its_set_cannot_be_replaced_and_so_goes_on_without_etcd() -> None:
    world, master, others = started(settings=GroupSettings(min_in_sync=1))
    for node in others:
        node.crash()
    world.run_until_true(lambda: world.record is not None and len(world.record.in_sync) == 1)
    world.run_until(world.now + 2)
    world.cut_meta(*world.nodes)
    world.run_until(world.now + 20)
    assert master.can_write
    settle(world)


# --- a promotion that stands still at each of its steps ---

STEPS = [do.Swap, do.BecomeMaster, do.Register, do.AllowWrites, do.Confirm]


@pytest.mark.parametrize("fault", ["pause", "kill", "power", "isolated"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_promotion_may_stop_at_any_step(step: type[do.Effect], fault: str, seed: int) -> None:
    world, master, _ = started(settings=GroupSettings(sync_flush=fault == "power"), seed=seed)
    stopped: list[Node] = []

    def after_effect(node: Node, effect: do.Effect) -> None:
        is_step = isinstance(effect, step) and (not isinstance(effect, do.Register) or effect.broker_id == 0)
        if stopped or node is master or not is_step:
            return
        stopped.append(node)
        if fault == "pause":
            node.paused_until = world.now + 8
        elif fault == "isolated":
            world.cut_off(node, meta=True)
        else:
            node.crash(power=fault == "power")
            world.later(6, lambda: node.start() if not node.is_up else None)

    master.crash()
    world.later(2, lambda: master.start() if not master.is_up else None)
    world.after_effect = after_effect
    world.run_until_true(lambda: bool(stopped))
    acks = world.watcher.acks
    world.run_until_true(lambda: world.watcher.acks > acks)  # the others go on
    settle(world)


# --- a truncation that crashes at each of its steps ---


@pytest.mark.parametrize("sync_flush", [True, False])
@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_truncation_may_crash_after_any_step(step: int, power: bool, sync_flush: bool) -> None:
    world, master, _ = started(settings=GroupSettings(sync_flush=sync_flush))
    world.cut_off(master, meta=True)
    world.run_until_true(lambda: len(master.disk.units) > master.disk.agrees_to + 5)
    world.run_until_true(lambda: world.leader is not None and world.leader is not master)
    crashed: list[int] = []

    def after_step(node: Node, number: int) -> None:
        if node is master and number == step and not crashed:
            crashed.append(number)
            node.crash(power=power)
            world.later(0.5, node.start)

    world.after_step = after_step
    world.restore()
    world.run_until_true(lambda: bool(crashed))
    settle(world)


# --- acknowledgements that must not count ---


def stale_ack(world: World, master: Node, slave: Node, *, other_epoch: bool) -> None:
    """The slave gets nothing more, and what says the opposite comes on a connection that was replaced, or of another
    epoch."""
    group = master.group
    assert group is not None
    assert slave.slave_link is not None
    link = slave.slave_link.master_link
    world.run_until(world.now + 1)
    world.has_producers = False
    world.run_until(world.now + 1)
    world.cut_one_way(master, slave)
    master.write(999_999)
    end = len(master.disk.units)
    world.run_until(world.now + 0.2)  # the other slave has it
    assert group.confirmed < end
    epoch = group.epoch
    if other_epoch:
        master.feed(on.Acked(link, epoch - 1 if epoch > 1 else epoch + 1, end))
    else:
        hello = on.HelloArrived(7, slave.number, slave.run, epoch, 0, len(slave.disk.units), slave.disk.epochs())
        master.feed(hello)
        master.feed(on.Acked(link, epoch, end))
    world.watcher.check()
    assert group.confirmed < end


@pytest.mark.parametrize("other_epoch", [False, True])
def test_an_acknowledgement_of_an_earlier_connection_or_another_epoch_counts_nothing(other_epoch: bool) -> None:
    world, master, others = started()
    stale_ack(world, master, others[0], other_epoch=other_epoch)
    settle(world)


@pytest.mark.parametrize(
    ("rules", "other_epoch"), [(Rules(ack_of_connection=False), False), (Rules(ack_of_epoch=False), True)]
)
def test_without_the_rule_such_an_acknowledgement_loses_messages(rules: Rules, other_epoch: bool) -> None:
    world, master, others = started(rules)
    with pytest.raises(Breach, match="I3"):
        stale_ack(world, master, others[0], other_epoch=other_epoch)


def a_master_that_one_slave_still_hears(rules: Rules) -> World:
    """Cut off from etcd and from one slave, it is replaced by that one; the other slave reads that."""
    world, master, others = started(rules)
    heard_by, elected = others
    world.cut_off(master, [elected], meta=True)
    world.run_until_true(lambda: elected.can_write, 20)
    assert heard_by.group is not None
    assert heard_by.group.epoch == 2
    return world


def test_a_slave_leaves_a_master_whose_epoch_is_over() -> None:
    settle(a_master_that_one_slave_still_hears(ALL_RULES))


def test_without_that_the_new_master_waits_for_it() -> None:
    with pytest.raises(Breach, match="not so within"):
        a_master_that_one_slave_still_hears(Rules(current_epoch=False))


# --- a change without an answer ---


def unanswered_growth(rules: Rules) -> None:
    """The master proposes that a member joins; etcd does it, and the master never hears of it. The joiner gets nothing
    more. What is written now must wait for it."""
    world, master, others = started(rules)
    joiner = others[0]
    joiner.crash()
    world.run_until_true(lambda: world.record is not None and joiner.number not in world.record.in_sync)
    proposed: list[do.Effect] = []

    def after_effect(node: Node, effect: do.Effect) -> None:
        if node is master and isinstance(effect, do.Swap) and not proposed:
            proposed.append(effect)
            world.unheard.add(master.number)
            world.cut_one_way(master, joiner)

    joiner.start()
    world.after_effect = after_effect
    world.run_until_true(lambda: world.record is not None and joiner.number in world.record.in_sync)
    world.run_until(world.now + 2.5)
    world.restore()
    settle(world)


def test_a_growth_without_an_answer_counts_as_proposed() -> None:
    unanswered_growth(ALL_RULES)


@pytest.mark.parametrize("rules", [Rules(union_of_sets=False), Rules(keep_proposal=False)])
def test_without_the_rule_it_loses_messages(rules: Rules) -> None:
    with pytest.raises(Breach, match="I3"):
        unanswered_growth(rules)


def test_no_as_the_answer_to_the_second_try_does_not_mean_that_the_first_was_not_done() -> None:
    """The first try was done and its answer lost; the second fails because of that. Until the master reads the record
    it has to wait for both sets."""
    world, master, others = started()
    joiner = others[0]
    joiner.crash()
    world.run_until_true(lambda: world.record is not None and joiner.number not in world.record.in_sync)
    joiner.start()
    world.run_until_true(lambda: any(isinstance(link, int) for link in master.links) and master.can_write)
    swaps: list[do.Swap] = []

    def after_effect(node: Node, effect: do.Effect) -> None:
        if node is master and isinstance(effect, do.Swap) and not swaps:
            swaps.append(effect)
            world.unheard.add(master.number)
            world.cut_one_way(master, joiner)

    world.after_effect = after_effect
    world.run_until_true(lambda: world.record is not None and joiner.number in world.record.in_sync)
    group = master.group
    assert group is not None
    assert group.proposal is not None
    master.feed(on.Swapped(swaps[0].token, False, world.meta.revision))
    world.run_until(world.now + 1)  # writes, and the other slave has them
    assert group.proposal is not None
    assert group.confirmed < len(master.disk.units)
    settle(world)


# --- the minimum ---


def two_die_then_the_master(rules: Rules) -> World:
    world, master, others = started(rules)
    for node in others:
        node.crash()
    world.run_until(world.now + 30)
    assert not master.can_write
    master.crash()
    for node in others:
        node.start()
    world.run_until_true(lambda: world.leader is not None)
    return world


def test_the_set_does_not_shrink_below_the_minimum_so_that_others_stay_electable() -> None:
    settle(two_die_then_the_master(ALL_RULES))


def test_without_that_the_group_waits_for_its_last_master() -> None:
    with pytest.raises(Breach, match="not so within"):
        two_die_then_the_master(Rules(keep_minimum=False))


# --- orders ---


def test_a_switch_hands_over_without_a_loss_within_a_second() -> None:
    world, master, others = started()
    record = world.record
    assert record is not None
    in_sync = record.in_sync
    world.order(Order(do="switch", nonce="n", member=others[0].number, epoch=record.epoch))
    world.run_until_true(lambda: not master.can_write)
    assert world.run_until_true(lambda: others[0].can_write) < 0.5
    assert world.record is not None
    assert world.record.epoch == record.epoch + 1
    assert world.record.in_sync == in_sync
    settle(world)


def test_a_switch_to_a_member_that_lags_is_refused_and_writes_go_on() -> None:
    world, master, others = started()
    others[0].crash()
    world.run_until_true(lambda: world.record is not None and others[0].number not in world.record.in_sync)
    assert world.record is not None
    world.order(Order(do="switch", nonce="n", member=others[0].number, epoch=world.record.epoch))
    world.run_until(world.now + 3)
    assert world.leader is master
    settle(world)


def test_a_switch_whose_target_does_not_catch_up_is_given_up() -> None:
    world, master, others = started()
    assert world.record is not None
    epoch = world.record.epoch
    world.cut_one_way(master, others[0])
    world.run_until(world.now + 0.2)
    world.order(Order(do="switch", nonce="n", member=others[0].number, epoch=epoch))
    world.run_until_true(lambda: not master.can_write)
    assert world.run_until_true(lambda: master.can_write) <= 1.2
    assert world.record.epoch == epoch
    settle(world)


def test_a_frozen_group_elects_nobody_until_it_is_thawed() -> None:
    world, master, _ = started()
    world.order(Order(do="freeze", nonce="n1", by="tests"))
    world.run_until_true(lambda: world.record is not None and world.record.frozen is not None)
    master.crash()
    world.run_until(world.now + 10)
    assert world.leader is None
    world.order(Order(do="thaw", nonce="n2"))
    world.run_until_true(lambda: world.leader is not None)
    settle(world)


def test_a_member_that_is_gone_can_be_forgotten_and_one_that_is_there_cannot() -> None:
    world, _, others = started()
    for nonce in ("n1", "n2"):
        world.order(Order(do="forget", nonce=nonce, member=others[0].number))
        world.run_until(world.now + 8)
        assert world.record is not None
        assert (others[0].number in world.record.members) is (nonce == "n1")
        others[0].crash()
        world.run_until(world.now + 8)


def last_one_loses_power() -> tuple[World, Node, Node]:
    """ASYNC_FLUSH: the master is alone in sync, and its machine loses power; another member is there."""
    world, master, others = started(settings=GroupSettings(min_in_sync=1), members=2)
    others[0].crash()
    world.run_until_true(lambda: world.record is not None and len(world.record.in_sync) == 1)
    world.run_until(world.now + 1)
    master.crash(power=True)
    others[0].start()
    world.run_until(world.now + 10)
    assert world.leader is None
    master.start()
    world.run_until(world.now + 10)
    assert world.record is not None
    assert world.record.frozen is not None
    assert world.record.frozen.why == "lost"
    assert world.leader is None
    return world, master, others[0]


def test_the_last_member_in_sync_that_may_have_lost_messages_freezes_the_group() -> None:
    world, _, _ = last_one_loses_power()
    world.order(Order(do="thaw", nonce="n"))
    world.run_until(world.now + 5)
    assert world.record is not None
    assert world.record.frozen is not None


@pytest.mark.parametrize(("name", "is_done"), [("group", True), ("another", False)])
def test_an_operator_who_names_the_group_may_accept_the_loss(name: str, is_done: bool) -> None:
    world, master, _ = last_one_loses_power()
    assert world.record is not None
    epoch = world.record.epoch
    world.watcher.committed = list(master.disk.units[: master.disk.whole_end()])  # the rest is given up
    for node in world.nodes:
        node.disk.agrees_to = 0
        world.watcher._advance(node.disk)
    world.order(Order(do="unclean", nonce="n", member=master.number, epoch=epoch, accept_loss=name))
    world.run_until(world.now + 10)
    assert (world.leader is master) is is_done
    assert world.record is not None
    assert world.record.loss_epoch == (epoch + 1 if is_done else 0)
    if is_done:
        settle(world)


# --- disks ---


def test_a_slave_whose_disk_fails_leaves_the_set_and_its_lease() -> None:
    world, master, others = started()
    others[0].feed(on.DiskFailed("fdatasync: EIO"))
    number = others[0].number
    world.run_until_true(lambda: world.record is not None and number not in world.record.in_sync)
    world.run_until(world.now + 3)
    assert len(world.meta.read("/ariane/v1/sim/group/member/").keys) == 2
    assert world.leader is master
    master.crash()
    world.run_until(world.now + 5)
    assert others[0].group is not None
    assert others[0].group.state is State.QUARANTINED


def test_a_master_whose_disk_fails_is_replaced_without_waiting_for_its_lease() -> None:
    world, master, others = started()
    master.feed(on.DiskFailed("fdatasync: EIO"))
    assert not master.can_write
    assert world.run_until_true(lambda: any(node.can_write for node in others)) < 2.5


def test_an_empty_disk_under_a_known_member_takes_it_out_of_the_set_first() -> None:
    world, _, others = started()
    node = others[0]
    node.crash()
    node.disk.cut(0)
    node.disk.store_id = "another disk"
    node.start()
    world.run_until(world.now + 10)
    settle(world)


def test_two_processes_cannot_be_the_same_member() -> None:
    world, _, others = started()
    node = others[0]
    twin = Node(world, node.number)
    twin.runs = 100
    twin.disk.store_id = "a copy"
    twin.start()
    world.run_until(world.now + 6)
    assert twin.group is not None
    assert twin.group.state is State.JOINING
    assert world.record is not None
    assert world.record.in_sync[node.number] == node.run
