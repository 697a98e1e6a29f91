"""Messages that are deleted while a query reads."""

from ariane.spark.data_loss import report_loss
from ariane.sql.sources import capture_data_loss


def test_a_data_loss_is_reported_during_the_scan_and_not_afterwards() -> None:
    output: list[str] = []
    with capture_data_loss(output.append):
        report_loss("queue 0 of topic orders on broker-a: messages 0 to 9 are gone", fail=False)
    report_loss("another", fail=False)
    assert output == ["queue 0 of topic orders on broker-a: messages 0 to 9 are gone"]
