"""A broker registers at nameservers with access control: it signs, it says why it cannot, its secret is not shown."""

import logging
from pathlib import Path

import pytest

from ariane.errors import RequestFailed, SettingsError
from ariane.nameserver.settings import NameserverSettings
from ariane.settings import Secret
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.brokers import GetBrokerSettings
from ariane.wire.requests.topics import GetRoute
from tests.broker.brokers import broker_settings, running_broker
from tests.broker.test_registration_announced import create
from tests.nameserver.servers import caller, nameserver
from tests.nameserver.test_access import ACCOUNTS, SECRETS
from tests.testing.commands import run

KEYS = {"namesrv_access_key": "broker1", "namesrv_secret_key": Secret(SECRETS["broker1"])}


def settings_of(tmp_path: Path) -> NameserverSettings:
    file = tmp_path / "accounts.yml"
    file.write_text(ACCOUNTS)
    return NameserverSettings(port=0, acl_enable=True, acl_file=file)


@pytest.mark.parametrize("forced", [True, False])
async def test_a_broker_with_its_account_registers_changes_and_leaves(tmp_path: Path, forced: bool) -> None:
    async with nameserver(settings_of(tmp_path)) as guarded, nameserver() as unguarded, caller() as client:
        nameservers = [guarded, unguarded]
        async with running_broker(tmp_path, nameservers, None, force_register=forced, **KEYS) as broker:
            assert broker.broker.registration.registered == nameservers
            await client.call(broker.address, create("orders"))
            for address in nameservers:
                assert (await client.call(address, GetRoute("orders"))).body.broker_datas[0].broker_name == "broker-a"
        for address in nameservers:
            with pytest.raises(RequestFailed) as gone:
                await client.call(address, GetRoute("orders"))
            assert gone.value.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_broker_without_an_account_serves_its_clients_and_logs_why_it_is_not_registered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ariane.broker.registration")
    async with nameserver(settings_of(tmp_path)) as address, running_broker(tmp_path, [address]) as broker:
        assert broker.broker.registration.registered == []
    (reason,) = (vars(record)["reason"] for record in caplog.records if "registration failed" in record.message)
    for word in ("REGISTER_BROKER", "access control", "namesrvAccessKey"):
        assert word in reason


async def test_the_secret_is_in_no_response_log_or_print(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_broker(tmp_path, [], None, **KEYS) as broker, caller() as client:
        shown = (await client.call(broker.address, GetBrokerSettings())).body
    conf = tmp_path / "broker.conf"
    conf.write_text(f"namesrvAccessKey=broker1\nnamesrvSecretKey={SECRETS['broker1']}\n")
    conf.chmod(0o600)
    printed = [run("broker", "-c", "broker.conf", option, cwd=tmp_path) for option in ("-p", "-m")]
    printed.append(run("config", "show", "-c", "broker.conf", "--origin", cwd=tmp_path))
    text = "".join([shown, caplog.text, *(outcome.out + outcome.err for outcome in printed)])
    assert [outcome.status for outcome in printed] == [0, 0, 0]
    assert SECRETS["broker1"] not in text


def test_an_access_key_without_its_secret_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="namesrvSecretKey"):
        broker_settings(tmp_path, namesrv_access_key="broker1")
