"""The report of a scan: how many messages, and whether it is complete."""

from ariane.sql.tables import Progress


def progress(total: int = 80_000, left_out: int = 0) -> Progress:
    return Progress(name="orders", queues=4, total=total, left_out=left_out)


def scanned(output: Progress, count: int, *, is_done: bool = True) -> Progress:
    scan = output.begin()
    scan.scanned, scan.is_done = count, is_done
    return output


def test_everything_was_scanned() -> None:
    assert scanned(progress(), 80_000).sentences() == ["scanned 80,000 messages of orders (4 queues), complete"]


def test_a_limited_scan_is_never_reported_as_complete() -> None:
    output = scanned(progress(left_out=68_000), 12_000).sentences()
    assert output == ["scanned 12,000 of 80,000 messages of orders (4 queues), stopped at --limit-scan: not complete"]


def test_a_query_that_needed_no_more_says_so() -> None:
    output = scanned(progress(), 32, is_done=False).sentences()
    assert output == ["scanned 32 of 80,000 messages of orders (4 queues): the query needed no more"]


def test_what_an_index_ruled_out_was_not_scanned_but_is_not_missing() -> None:
    output = scanned(progress(), 3).sentences()
    assert output == [
        "scanned 3 of 80,000 messages of orders (4 queues), complete: the others were ruled out without reading"
    ]


def test_a_topic_that_is_joined_with_itself_is_read_twice() -> None:
    output = scanned(scanned(progress(10), 10), 10).sentences()
    assert output == ["scanned 10 messages of orders (4 queues), each 2 times, complete"]


def test_problems_make_it_incomplete_and_only_the_first_are_shown() -> None:
    output = scanned(progress(10), 10)
    for number in range(8):
        output.add_problem(f"problem {number}")
    sentences = output.sentences()
    assert sentences[:5] == [f"incomplete: problem {number}" for number in range(5)]
    assert sentences[5:] == [
        "incomplete: 3 more problems in orders",
        "scanned 10 of 10 messages of orders (4 queues), not complete",
    ]
    assert not output.is_complete


def test_a_table_without_scans_is_not_mentioned() -> None:
    assert progress().sentences() == []
