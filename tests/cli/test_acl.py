"""`ariane acl init` writes accounts that a server accepts, for its owner's eyes only."""

import stat
from pathlib import Path
from typing import Any

from ariane.acl.file import read_rules
from ariane.nameserver.settings import NameserverSettings
from ariane.store.disk import RealDisk
from tests.broker.brokers import running_broker
from tests.nameserver.servers import nameserver
from tests.testing.commands import run


async def test_the_file_is_private_and_lets_a_broker_listen_for_everybody(tmp_path: Path) -> None:
    outcome = run("acl", "init", "conf/accounts.yml", cwd=tmp_path)
    file = tmp_path / "conf" / "accounts.yml"
    assert outcome.status == 0, outcome.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert str(file) in outcome.out
    _, rules = read_rules(RealDisk(), file)
    assert [account.admin for account in rules.accounts.values()].count(True) == 1
    for account in rules.accounts.values():
        assert account.access_key in outcome.out
        assert account.secret.reveal() not in outcome.out + outcome.err
    settings: dict[str, Any] = {"host": "0.0.0.0", "advertised_host": "127.0.0.1", "acl_enable": True, "acl_file": file}
    broker = next(account for account in rules.accounts.values() if not account.admin)
    keys = {"namesrv_access_key": broker.access_key, "namesrv_secret_key": broker.secret}
    guarded = NameserverSettings(host="0.0.0.0", port=0, acl_enable=True, acl_file=file)
    async with nameserver(guarded) as address:
        namesrv = address.replace("0.0.0.0", "127.0.0.1")
        async with running_broker(tmp_path, [namesrv], None, **settings, **keys) as running:
            assert running.broker.registration.registered == [namesrv]


def test_two_files_have_different_secrets_and_an_existing_one_is_kept(tmp_path: Path) -> None:
    assert run("acl", "init", cwd=tmp_path).status == 0
    first = (tmp_path / "conf" / "plain_acl.yml").read_text()
    again = run("acl", "init", cwd=tmp_path)
    assert (again.status, again.out) == (1, "")
    assert "exists" in again.err
    assert (tmp_path / "conf" / "plain_acl.yml").read_text() == first
    assert run("acl", "init", "other.yml", cwd=tmp_path).status == 0
    assert (tmp_path / "other.yml").read_text() != first
