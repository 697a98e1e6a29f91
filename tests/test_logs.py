"""Log lines: text and JSON form, escaping of untrusted values, and configuration."""

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.logs import (
    VALUE_LENGTH_MAX,
    JsonFormatter,
    LogForm,
    RepeatedWarnings,
    RequestContext,
    TextFormatter,
    configure,
    request_context,
)
from ariane.settings import Secret
from tests.transport.peers import until

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ +[\w.]+: ")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A place for logs; afterwards the process logs as before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def record(event: str, **fields: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {
            "name": "ariane.test",
            "levelname": "INFO",
            "levelno": logging.INFO,
            "created": 0.125,
            "msecs": 125.0,
            "msg": event,
        }
        | fields
    )


def text(event: str, **fields: object) -> str:
    return TextFormatter().format(record(event, **fields))


def as_json(event: str, **fields: object) -> dict[str, object]:
    line = JsonFormatter().format(record(event, **fields))
    assert line.isascii()
    assert line.isprintable()
    decoded = json.loads(line)
    assert isinstance(decoded, dict)
    return decoded


def test_a_text_line_has_time_level_logger_event_and_fields() -> None:
    assert text("broker registered", broker="b1", topics=12) == (
        "1970-01-01T00:00:00.125Z INFO    ariane.test: broker registered broker=b1 topics=12"
    )


def test_a_json_line_has_the_same_parts() -> None:
    assert as_json("broker registered", broker="b1", topics=12, ratio=0.5, leader=True, left=None) == {
        "time": "1970-01-01T00:00:00.125Z",
        "level": "INFO",
        "logger": "ariane.test",
        "event": "broker registered",
        "broker": "b1",
        "topics": 12,
        "ratio": 0.5,
        "leader": True,
        "left": None,
    }


def test_a_newline_in_a_value_cannot_forge_a_line() -> None:
    forged = "x\n1970-01-01T00:00:00.125Z ERROR   ariane.test: all lost"
    assert text("name refused", topic=forged).splitlines() == [
        '1970-01-01T00:00:00.125Z INFO    ariane.test: name refused topic="x\\n1970-01-01T00:00:00.125Z ERROR   '
        'ariane.test: all lost"'
    ]


def test_spaces_quotes_and_equals_signs_cannot_forge_a_field() -> None:
    assert text("e", topic='a code=0 b="1"').endswith(': e topic="a code=0 b=\\"1\\""')
    assert text("e", topic="").endswith('topic=""')
    assert text("e", topic='\\" x').endswith('topic="\\\\\\" x"')


@given(st.text())
def test_any_value_stays_on_one_printable_line(value: str) -> None:
    line = text("event", value=value)
    assert line.isprintable()
    assert LINE.match(line)
    assert as_json("event", value=value)["value"] == value


@given(st.text())
def test_any_event_stays_on_one_printable_line(event: str) -> None:
    assert text(event).isprintable()
    assert as_json(event)["event"] == event


def test_a_long_value_is_truncated() -> None:
    cut = as_json("e", value="x" * (VALUE_LENGTH_MAX + 1))["value"]
    assert cut == "x" * VALUE_LENGTH_MAX + f"... ({VALUE_LENGTH_MAX + 1} characters)"


def test_a_traceback_is_indented_so_that_its_message_cannot_look_like_a_log_line() -> None:
    try:
        raise ValueError("bad\n1970-01-01T00:00:00.125Z ERROR   ariane.test: forged\x1b[2J")
    except ValueError as error:
        failure = (ValueError, error, error.__traceback__)
    first, *rest = text("request failed", exc_info=failure).split("\n")
    assert LINE.match(first)
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "ValueError: bad" in str(as_json("request failed", exc_info=failure)["traceback"])


def test_a_field_cannot_replace_a_part_of_the_line() -> None:
    decoded = as_json("event", time="never", level="NONE")
    assert (decoded["level"], decoded["level_"]) == ("INFO", "NONE")
    assert decoded["time_"] == "never"


def test_numbers_without_a_json_form_are_text() -> None:
    assert as_json("e", value=float("nan"))["value"] == "nan"


def test_a_secret_does_not_show() -> None:
    assert "hunter2" not in text("e", password=Secret("hunter2")) + str(as_json("e", password=Secret("hunter2")))


def test_both_forms_include_the_request_context() -> None:
    token = request_context.set(RequestContext(peer="10.0.0.7:50122", code=105))
    try:
        assert text("topic unknown", topic="t").endswith("topic unknown peer=10.0.0.7:50122 code=105 topic=t")
        assert as_json("topic unknown")["code"] == 105
        assert as_json("connection lost", peer="10.0.0.8:1")["peer"] == "10.0.0.8:1"
    finally:
        request_context.reset(token)
    assert "peer=" not in text("topic unknown", topic="t")


def test_configure_sends_every_logger_to_the_stream(stream: io.StringIO) -> None:
    configure("warning", LogForm.TEXT, stream)
    logging.getLogger("ariane.somewhere").warning("seen", extra={"n": 1})
    logging.getLogger("asyncio").error("seen too")
    logging.getLogger("ariane.somewhere").info("below the level")
    assert [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()] == ["seen n=1", "seen too"]


def test_configuring_twice_does_not_write_twice(stream: io.StringIO) -> None:
    configure("info", LogForm.TEXT, io.StringIO())
    configure("info", LogForm.JSON, stream)
    logging.getLogger("ariane.somewhere").info("once")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["once"]


def test_as_a_library_nothing_is_written() -> None:
    handlers = logging.getLogger("ariane").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]


# --- warnings that peers repeat ---


async def test_a_repeated_warning_is_logged_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    warnings = RepeatedWarnings(logging.getLogger("ariane.test"), interval_s=0.2)
    for number in range(50):
        warnings.warning("offset rejected", "billing", {"group": "billing", "offset": -number})
    warnings.warning("offset rejected", "shipping", {"group": "shipping", "offset": 7})
    assert [(vars(record)["group"], vars(record)["offset"]) for record in caplog.records] == [
        ("billing", 0),
        ("shipping", 7),
    ]
    await until(lambda: len(caplog.records) == 3)
    counted = vars(caplog.records[2])
    assert (counted["group"], counted["offset"], counted["repeated"]) == ("billing", -49, 49)
    await asyncio.sleep(0.25)
    assert len(caplog.records) == 3  # what was not repeated is not reported again
    warnings.warning("offset rejected", "billing", {"group": "billing", "offset": 1})
    assert len(caplog.records) == 4


async def test_subjects_that_a_peer_invents_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    warnings = RepeatedWarnings(logging.getLogger("ariane.test"))
    for number in range(5_000):
        warnings.warning("offset rejected", f"group-{number}", {})
    assert len(caplog.records) == 1_001
