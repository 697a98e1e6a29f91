"""Messages that went while a query was reading."""

from ariane.spark.data_loss import report_loss
from ariane.sql.sources import capture_data_loss


def test_a_loss_is_told_to_whoever_scans_and_to_nobody_afterwards() -> None:
    output: list[str] = []
    with capture_data_loss(output.append):
        report_loss("queue 0 of topic orders on broker-a: messages 0 to 9 are gone", fail=False)
    report_loss("another", fail=False)
    assert output == ["queue 0 of topic orders on broker-a: messages 0 to 9 are gone"]
