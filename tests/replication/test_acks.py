"""Acknowledgements in a group: whose, in which epoch, on which connection, and how far."""

from ariane.replication.acks import GroupAcks


def acks_of(*members: int) -> GroupAcks:
    acks = GroupAcks(7)
    for member in members:
        acks.welcome(10 * member, member, f"run-{member}", now=0.0, log_end=100)
    return acks


def report(acks: GroupAcks, link: int, end: int, *, epoch: int = 7, now: float = 1.0) -> bool | None:
    return acks.report(link, epoch, end, now, log_end=100, confirmed=50)


NEEDED = [(2, "run-2"), (3, "run-3")]


def test_what_all_of_a_set_have_is_confirmed() -> None:
    acks = acks_of(2, 3)
    assert acks.confirmed(100, NEEDED) is None
    report(acks, 20, 80)
    assert acks.confirmed(100, NEEDED) is None  # one has said nothing yet
    report(acks, 30, 60)
    assert acks.confirmed(100, NEEDED) == 60
    assert acks.confirmed(55, NEEDED) == 55  # the master's own log counts, too
    assert acks.confirmed(100, [(2, "run-2")]) == 80
    assert acks.confirmed(100, []) == 100


def test_a_member_counts_with_the_incarnation_that_the_set_names() -> None:
    acks = acks_of(2)
    report(acks, 20, 80)
    assert acks.confirmed(100, [(2, "an earlier run")]) is None


def test_an_acknowledgement_goes_with_its_connection() -> None:
    acks = acks_of(2)
    report(acks, 20, 80)
    acks.drop(20)
    assert acks.confirmed(100, [(2, "run-2")]) is None
    assert report(acks, 20, 90) is False


def test_a_new_connection_replaces_the_old_one_and_begins_without_acknowledgements() -> None:
    acks = acks_of(2)
    report(acks, 20, 80)
    assert acks.welcome(21, 2, "run-2", now=2.0, log_end=100) == 20
    assert report(acks, 20, 95) is False
    assert acks.confirmed(100, [(2, "run-2")]) is None
    report(acks, 21, 70)
    assert acks.confirmed(100, [(2, "run-2")]) == 70
    assert acks.drop(20) is None  # the end of the old one changes nothing
    assert acks.confirmed(100, [(2, "run-2")]) == 70


def test_a_report_of_another_epoch_or_beyond_the_own_end_ends_the_connection() -> None:
    acks = acks_of(2)
    assert report(acks, 20, 80, epoch=6) is None
    assert report(acks, 20, 80, epoch=8) is None
    assert report(acks, 20, 101) is None
    assert acks.confirmed(100, [(2, "run-2")]) is None


def test_a_report_before_an_introduction_counts_nothing() -> None:
    assert report(acks_of(2), 99, 80) is False


def test_a_report_that_goes_back_changes_nothing() -> None:
    acks = acks_of(2)
    report(acks, 20, 80)
    report(acks, 20, 70)
    assert acks.confirmed(100, [(2, "run-2")]) == 80


def test_a_member_is_caught_up_when_it_has_what_there_was_at_the_report_before() -> None:
    acks = acks_of(2)
    (member,) = acks.all()
    report(acks, 20, 99, now=1.0)
    assert (member.caught_up_at, member.caught_up_reports) == (0.0, 1)
    report(acks, 20, 100, now=2.0)
    assert (member.caught_up_at, member.caught_up_reports) == (2.0, 2)


def test_reports_below_what_is_confirmed_begin_the_count_anew() -> None:
    acks = acks_of(2)
    (member,) = acks.all()
    report(acks, 20, 40)
    assert member.caught_up_reports == 0
    report(acks, 20, 50)
    assert member.caught_up_reports == 1
