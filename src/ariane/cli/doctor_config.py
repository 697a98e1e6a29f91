"""Checks of a broker's settings file, and of the ports it names."""

import os
from collections.abc import Iterator
from pathlib import Path

from ariane.broker.ports import reserved_ports
from ariane.broker.settings import BrokerSettings
from ariane.cli.broker_settings import load_broker_settings
from ariane.cli.doctor_findings import Finding, failure, ok, warning
from ariane.errors import ListenFailed, SettingsError
from ariane.settings import Loaded


def load_config(file: Path) -> tuple[list[Finding], Loaded[BrokerSettings] | None]:
    """What is wrong with the file, and the settings when a broker would start with it."""
    try:
        loaded = load_broker_settings(file, os.environ, {})
    except SettingsError as error:
        return [failure("settings", str(error), "correct the file; docs/settings.md has every setting")], None
    found = [warning("settings", text, "leave the key out, or see docs/settings.md") for text in loaded.warnings]
    return found or [ok("settings", f"{file}: every key is known and in range")], loaded


def check_ports(settings: BrokerSettings, *, runs: bool) -> Iterator[Finding]:
    """`runs`: a broker is at work on the store of these settings, so that its ports are to be in use."""
    where = f"{settings.host}:{settings.port}"
    try:
        with reserved_ports(settings.host, settings.port):
            pass
    except ListenFailed as error:
        if runs:
            yield ok("ports", f"{where} is in use, by the broker that runs")
        else:
            yield failure("ports", str(error), "stop what listens there, or change listenPort")
        return
    if runs:
        cure = "see its log: it may have been started with another port"
        yield warning("ports", f"a broker runs on the store, but nobody listens at {where}", cure)
    else:
        yield ok("ports", f"{where} and the VIP port {settings.port - 2} are free")
