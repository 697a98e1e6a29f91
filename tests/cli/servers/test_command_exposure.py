"""Every command that listens refuses to do so beyond loopback, unless it is allowed to or has access control."""

from pathlib import Path
from typing import Any

import pytest

from ariane.broker.server import running
from ariane.broker.settings import MetricsExporter
from ariane.clock import Clock
from ariane.errors import SettingsError
from tests.broker.brokers import broker_settings
from tests.testing.commands import run, up

OPEN = {"ARIANE_BROKER__HOST": "0.0.0.0"}
COMMANDS = {
    "broker": (("broker", "--listen", "0.0.0.0:0", "--store", "store"), {}),
    "broker with a file": (("broker", "-c", "broker.conf", "--store", "store"), {}),
    "broker, metrics": (("broker", "-c", "metrics.conf", "--store", "store"), {}),
    "nameserver": (("namesrv", "--listen", "0.0.0.0:0"), {}),
    "nameserver with a file": (("namesrv", "-c", "namesrv.conf"), {}),
    "up, nameserver": (("up", "--port", "0", "--broker-port", "0"), {"ARIANE_NAMESERVER__HOST": "0.0.0.0"}),
    "up, broker": (("up", "--port", "0", "--broker-port", "0"), OPEN),
    "up, brokers": (("up", "--port", "0", "--broker-port", "0", "--brokers", "2"), OPEN),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_would_listen_for_everybody_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("bindAddress=0.0.0.0\nlistenPort=0\n")
    (tmp_path / "namesrv.conf").write_text("bindAddress=0.0.0.0\nlistenPort=0\n")
    metrics = "listenPort=0\nmetricsExporterType=PROM\nmetricsPromExporterHost=0.0.0.0\nmetricsPromExporterPort=0\n"
    (tmp_path / "metrics.conf").write_text(metrics)
    arguments, variables = COMMANDS[name]
    outcome = run(*arguments, cwd=tmp_path, **variables)
    assert (outcome.status, outcome.out) == (2, "")
    for word in ("0.0.0.0", "127.0.0.1", "aclEnable=true", "ariane acl init", "--insecure"):
        assert word in outcome.err
    assert not (tmp_path / "store").exists()


def test_up_listens_for_everybody_if_it_is_allowed_to(tmp_path: Path) -> None:
    variables = {**OPEN, "ARIANE_NAMESERVER__HOST": "0.0.0.0", "ARIANE_BROKER__ADVERTISED_HOST": "127.0.0.1"}
    with up("--insecure", "--brokers", "2", cwd=tmp_path, **variables) as servers:
        port = servers.namesrv.rpartition(":")[2]
        assert servers.namesrv.startswith("0.0.0.0:")
        assert run("topic", "create", "orders", "-n", f"127.0.0.1:{port}", cwd=tmp_path).status == 0
        stopped = servers.stop()
    assert stopped.err.count("listening beyond this machine without access control") == 3  # a nameserver, two brokers


async def test_metrics_on_loopback_of_a_broker_that_is_open_are_no_reason_to_refuse(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"metrics_exporter": MetricsExporter.PROM, "metrics_port": 0}
    accepted = broker_settings(tmp_path, metrics_host="127.0.0.1", **settings)
    async with running(accepted, Clock()) as broker:
        assert broker.metrics is not None
    with pytest.raises(SettingsError, match="metricsPromExporterHost"):
        async with running(broker_settings(tmp_path, metrics_host="0.0.0.0", **settings), Clock()):
            pass
