"""Which addresses count as beyond this machine, what is refused, and the hourly warning."""

import logging
import socket

import pytest

from ariane.errors import SettingsError
from ariane.testing import FakeClock
from ariane.transport.exposure import exposed_hosts, exposure_logged, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.4.5.6", "localhost", "::1", "::ffff:127.0.0.1", "no-such.invalid"])
def test_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7", "2001:db8::1", "::ffff:192.0.2.7", "0"])
def test_others_may_reach(host: str) -> None:
    assert not is_loopback(host)


def test_a_name_with_one_address_beyond_loopback_is_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*arguments: object, **options: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, 0, 0, "", ("127.0.0.1", 0)), (socket.AF_INET, 0, 0, "", ("192.0.2.7", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert not is_loopback("both")


@pytest.mark.parametrize("access_control", [True, False])
@pytest.mark.parametrize("insecure", [True, False])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_an_open_server_needs_access_control_or_consent(host: str, insecure: bool, access_control: bool) -> None:
    hosts = {"bindAddress": host}
    if host == "127.0.0.1" or access_control:
        assert exposed_hosts(hosts, access_control=access_control, insecure=insecure) == {}
    elif insecure:
        assert exposed_hosts(hosts, access_control=access_control, insecure=insecure) == hosts
    else:
        with pytest.raises(SettingsError) as refused:
            exposed_hosts(hosts, access_control=access_control, insecure=insecure)
        for word in ("0.0.0.0 (bindAddress)", "127.0.0.1", "aclEnable=true", "ariane acl init", "--insecure"):
            assert word in str(refused.value)


async def test_the_log_says_it_at_the_start_and_every_hour(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with exposure_logged("broker", {"bindAddress": "0.0.0.0"}, clock):
        await clock.advance(1)
        assert len(caplog.records) == 1
        await clock.advance(3590)
        assert len(caplog.records) == 1
        for hours in range(2, 5):
            await clock.advance(3600)
            assert len(caplog.records) == hours
    record = caplog.records[-1]
    assert record.levelno == logging.WARNING
    assert vars(record)["listening"] == "0.0.0.0"


async def test_a_server_on_loopback_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with exposure_logged("broker", {}, clock):
        await clock.advance(7200)
    assert caplog.records == []
