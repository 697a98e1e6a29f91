"""The HTTP endpoint of metrics: responses, errors, limits and slow connections."""

import asyncio
import socket
from pathlib import Path

import pytest

from ariane.broker.metrics.http import CONNECTIONS_MAX, REQUEST_BYTES_MAX
from ariane.broker.settings import MetricsExporter
from ariane.errors import ListenFailed
from tests.broker.brokers import broker_settings, running_broker
from tests.broker.metrics_fixtures import Samples, monitored_broker, parsed


async def test_the_metrics_have_the_prometheus_text_format(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        status, headers, body = await broker.get("/metrics?name=x")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert int(headers["Content-Length"]) == len(body)
    assert "rocketmq_broker_permission" in Samples(body.decode()).families


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=abc", "*/*", ";;;=", "text/plain;version=9"])
async def test_every_accept_header_gets_the_text_format(tmp_path: Path, accept: str) -> None:
    async with monitored_broker(tmp_path) as broker:
        response = await broker.exchange(f"GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode())
    assert parsed(response)[0] == 200


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metricsx", "http://elsewhere/metrics", "/../metrics"])
async def test_other_paths_are_not_found(tmp_path: Path, path: str) -> None:
    async with monitored_broker(tmp_path) as broker:
        status, _, body = await broker.get(path)
    assert (status, body) == (404, b"only /metrics is supported\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "HEAD", "DELETE", "get"])
async def test_only_get_is_served(tmp_path: Path, method: str) -> None:
    async with monitored_broker(tmp_path) as broker:
        assert (await broker.get(method=method))[0] == 405


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"", 400),
        (b"\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/2\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: here", 400),
        (bytes(range(256)) + b"\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES_MAX, 431),
    ],
)
async def test_an_invalid_request_gets_an_error_status(tmp_path: Path, request_bytes: bytes, status: int) -> None:
    async with monitored_broker(tmp_path) as broker:
        assert parsed(await broker.exchange(request_bytes))[0] == status
        assert (await broker.get())[0] == 200


async def test_a_request_may_come_byte_by_byte(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        reader, writer = await asyncio.open_connection(broker.address.host, broker.address.port)
        for byte in b"GET /metrics HTTP/1.1\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
        assert parsed(await reader.read())[0] == 200
        writer.close()


async def test_silent_connections_do_not_block_others_below_the_limit(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        address = broker.address.host, broker.address.port
        silent = [await asyncio.open_connection(*address) for _ in range(CONNECTIONS_MAX - 1)]
        assert (await broker.get())[0] == 200
        silent.append(await asyncio.open_connection(*address))
        reader, writer = await asyncio.open_connection(*address)
        assert await reader.read() == b""  # one too many: closed at once
        for _, other in [*silent, (reader, writer)]:
            other.close()


async def test_a_broker_stops_although_a_connection_sends_nothing(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        reader, writer = await asyncio.open_connection(broker.address.host, broker.address.port)
        assert (await broker.get())[0] == 200
    assert await reader.read() == b""
    writer.close()


async def test_metrics_are_disabled_by_default(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert broker.broker.metrics is None


async def test_a_port_in_use_is_reported_with_its_settings_before_the_store_is_opened(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenFailed, match=r"metricsPromExporterPort.* or metricsExporterType to DISABLE"):
            async with running_broker(tmp_path, metrics_exporter=MetricsExporter.PROM, metrics_port=port):
                pass
    assert not (tmp_path / "store").exists()


def test_metrics_are_served_on_the_brokers_address_by_default(tmp_path: Path) -> None:
    settings = broker_settings(tmp_path)
    assert (settings.metrics_exporter, settings.metrics_host, settings.metrics_port) == ("DISABLE", None, 5557)
