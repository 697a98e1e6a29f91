"""Apache's own mqadmin changes accounts of a broker of ours: it requires a secret, which nobody was shown."""

import asyncio
from pathlib import Path

from ariane.broker.acl.guard import AccessControl
from interop.mqadmin import open_mqadmin
from tests.broker.brokers import running_cluster
from tests.client.apache_servers import needs_apache

ACCOUNTS = """
accounts:
- {accessKey: administrator, secretKey: secret-of-1, admin: true}
- {accessKey: account-2, secretKey: secret-of-2, topicPerms: [orders=SUB]}
"""


@needs_apache
async def test_apaches_mqadmin_changes_an_account_and_keeps_its_secret(tmp_path: Path) -> None:
    file, home = tmp_path / "plain_acl.yml", tmp_path / "mqadmin"
    file.write_text(ACCOUNTS)
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text("accessKey: administrator\nsecretKey: secret-of-1\n")
    async with running_cluster(tmp_path, acl_enable=True, acl_file=file) as cluster:
        where = ("-b", cluster.broker.address)

        def change() -> str:
            with open_mqadmin(cluster.nameserver, home) as mqadmin:
                return mqadmin.run("updateAclConfig", *where, "-a", "account-2", "-s", "********", "-t", "orders=PUB")

        done = await asyncio.to_thread(change)
        assert "success" in done, done
        access = cluster.broker.parts.access
        assert isinstance(access, AccessControl)
        account = access.rules.accounts["account-2"]
        assert account.secret.reveal() == "secret-of-2"
        assert [permission.name for permission in account.topics.values()] == ["PUB"]
