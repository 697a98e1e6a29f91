"""The load generator against a real broker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.load.plan import Kind, LoadPlan, LoadResult, Serialization, Wire, run_load
from bench.load.rocketmq import OFFSET_FIRST
from bench.systems.ariane import Ariane
from bench.systems.system import Running, Setup


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    with Ariane().start(Setup(queues=2), tmp_path / "home") as running:
        yield running


def run(broker: Running, kind: Kind, requests: int, *, in_flight: int = 5, **more: Any) -> LoadResult:
    plan = LoadPlan(
        wire=Wire.ROCKETMQ,
        kind=kind,
        addresses=broker.addresses,
        connections=3 if kind is not Kind.FILL else 1,
        in_flight=in_flight,
        body_bytes=100,
        queues=2,
        requests=requests,
        pids=broker.servers,
        **more,
    )
    return run_load(plan)


def test_every_request_is_sent_and_answered(broker: Running) -> None:
    result = run(broker, Kind.SEND, 1_000)
    assert (result.requests, result.messages, result.refused) == (1_000, 1_000, 0)
    assert 0 < result.p50_us <= result.p99_us <= result.p999_us
    assert result.server_cpu_s > 0


def test_requests_with_binary_headers_are_answered(broker: Running) -> None:
    result = run(broker, Kind.SEND, 1_000, serialization=Serialization.BINARY)
    assert (result.requests, result.messages, result.refused) == (1_000, 1_000, 0)


def test_a_batch_counts_as_its_messages(broker: Running) -> None:
    result = run(broker, Kind.BATCH, 20, messages_a_request=10)
    assert (result.requests, result.messages, result.refused) == (20, 200, 0)


def test_filled_messages_are_pulled(broker: Running) -> None:
    run(broker, Kind.FILL, (OFFSET_FIRST + 640) * 2)
    result = run(broker, Kind.PULL, 40, messages_a_request=32, filled=OFFSET_FIRST + 640)
    assert (result.requests, result.messages, result.refused) == (40, 40 * 32, 0)


def test_an_error_response_is_counted_and_reported(broker: Running) -> None:
    result = run(broker, Kind.SEND, 10, topics=2)  # the broker has only the first of them
    assert (result.messages, result.refused) == (5, 5)
    assert '"code":17,' in result.first_error
