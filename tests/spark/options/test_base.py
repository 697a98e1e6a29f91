"""Options of the Spark source and sink: names, values, and combinations that are refused."""

import pytest

from ariane.errors import SettingsError
from ariane.spark.options.base import read_options
from ariane.spark.options.read import ReadOptions, delay_s, to_ms
from ariane.spark.options.write import WriteOptions


def read(**options: str) -> ReadOptions:
    return read_options(ReadOptions, {"topic": "orders"} | options)


def test_option_names_have_no_case() -> None:
    assert read(STARTINGoffsets="latest").starting == "latest"


def test_an_unknown_option_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match="startingOffset is unknown: did you mean startingOffsets"):
        read(startingOffset="earliest")


def test_the_names_of_apaches_connector_are_accepted() -> None:
    options = read(nameServer="a:1", subExpression="A || B", pullBatchSize="16", pullTimeout="500", group="g")
    assert (options.nameservers, options.tag_list, options.pull_count) == ("a:1", ["A", "B"], 16)
    assert (options.pull_timeout_ms, options.group) == (500, "g")


def test_an_option_given_under_two_names_is_an_error() -> None:
    with pytest.raises(SettingsError, match="tags is given twice"):
        read(tags="A", subExpression="B")


def test_a_bad_value_says_what_was_expected() -> None:
    with pytest.raises(SettingsError, match="option minPartitions is 'many': expected a whole number"):
        read(minPartitions="many")


def test_a_secret_is_not_shown() -> None:
    options = read(accessKey="me", secretKey="hush")
    assert "hush" not in repr(options)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"topicPattern": ".*"}, "exactly one"),
        ({"tags": "A", "sqlFilter": "a > 1"}, "tags and sqlFilter"),
        ({"readMode": "store"}, "needs the option storePath"),
        ({"asOfTimestamp": "5", "endingTimestamp": "6"}, "leave one out"),
        ({"startingOffsets": "latest", "startingTimestamp": "6"}, "leave one out"),
        ({"startingTimestamp": "9", "endingTimestamp": "6"}, "exchange them"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"maxTriggerDelay": "soon"}, "500ms, 30s"),
        ({"format": "json", "mode": "FAILFAST", "badRecordsPath": "bad"}, "mode and badRecordsPath"),
        ({"format": "json", "mode": "LAX"}, "expected one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"inferSchema": "true"}, "add format=json"),
        ({"accessKey": "me"}, None),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], fault: str | None) -> None:
    if fault is None:
        with pytest.raises(SettingsError, match="come together"):
            read(**options).client_settings()
        return
    with pytest.raises(SettingsError, match=fault):
        read(**options)


def test_times_are_milliseconds_or_iso_in_utc() -> None:
    assert to_ms("1767225600000", "x") == 1767225600000
    assert to_ms("2026-01-01T00:00:00", "x") == to_ms("2026-01-01T01:00:00+01:00", "x") == 1767225600000
    assert [delay_s(text) for text in ("500ms", "30s", "15m", "1h")] == [0.5, 30, 900, 3600]


def test_a_delivery_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingsError, match="option delivery is 'at-most-once': expected one of"):
        read_options(WriteOptions, {"delivery": "at-most-once"})


def test_sparks_own_options_pass() -> None:
    assert read_options(WriteOptions, {"checkpointLocation": "x", "topic": "t"}).topic == "t"
