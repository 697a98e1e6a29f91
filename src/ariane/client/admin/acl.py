"""Admin API for accounts and white lists of brokers with access control (ACL)."""

from collections.abc import Iterable, Mapping

import msgspec

from ariane.client.admin.requests import AdminRequests, Broker, PerBroker
from ariane.errors import ClientError
from ariane.model.topic import DataVersion
from ariane.wire.json.body import decode_json
from ariane.wire.requests.acl import (
    AccessRules,
    AccessVersionResponse,
    DeleteAccount,
    GetAccessRules,
    GetAccessVersion,
    UpdateAccount,
    UpdateGlobalWhiteList,
)


class AccountAdmin:
    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def rules(self, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[AccessRules]:
        """The accounts and white lists of each broker. Secret keys, which Apache's brokers return, are left out."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        responses = (await self._requests.each(brokers, GetAccessRules())).some("reading accounts")
        return responses.mapped(lambda response: _without_secrets(response.body))

    async def versions(self, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[DataVersion]:
        """The version of the rules of each broker: brokers of a cluster should have the same."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        responses = (await self._requests.each(brokers, GetAccessVersion())).some("reading versions of accounts")
        return responses.mapped(lambda response: decode_json(response.version.encode(), DataVersion))

    async def file_versions(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[dict[str | None, DataVersion]]:
        """The same for each ACL file, by name; brokers before 4.9 have one file without a name."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        responses = (await self._requests.each(brokers, GetAccessVersion())).some("reading versions of accounts")
        return responses.mapped(_by_file)

    async def put(
        self,
        access_key: str,
        *,
        secret_key: str | None = None,
        admin: bool = False,
        white_address: str | None = None,
        default_topic_perm: str | None = None,
        default_group_perm: str | None = None,
        topic_perms: Mapping[str, str] | None = None,
        group_perms: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Creates an account, or changes the given fields; permissions are "DENY", "PUB", "SUB" or "PUB|SUB"."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        request = UpdateAccount(
            access_key=access_key,
            secret_key=secret_key,
            white_remote_address=white_address,
            admin=admin,
            default_topic_perm=default_topic_perm,
            default_group_perm=default_group_perm,
            topic_perms=_perms(topic_perms),
            group_perms=_perms(group_perms),
        )
        return (await self._requests.each(brokers, request)).all(f"putting account {access_key}")

    async def delete(self, access_key: str, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        return (await self._requests.each(brokers, DeleteAccount(access_key))).all(f"deleting account {access_key}")

    async def set_white_list(
        self, addresses: Iterable[str], *, cluster: str | None = None, broker: str | None = None
    ) -> list[Broker]:
        """Addresses from which every request is allowed. Replaces the list."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        request = UpdateGlobalWhiteList(",".join(addresses))
        return (await self._requests.each(brokers, request)).all("setting the white list")


def _by_file(response: AccessVersionResponse) -> dict[str | None, DataVersion]:
    if response.all_acl_file_version is None:
        return {None: decode_json(response.version.encode(), DataVersion)}
    by_name = decode_json(response.all_acl_file_version.encode(), dict[str, DataVersion])
    return {name: version for name, version in by_name.items()}  # noqa: C416 - a dict of another type


def _perms(perms: Mapping[str, str] | None) -> str | None:
    if perms is None:
        return None
    for name in perms:
        if "," in name or "=" in name:
            raise ClientError(f"{name!r} is not a valid topic or group name: it contains ',' or '='")
    return ",".join(f"{name}={perm}" for name, perm in perms.items())


def _without_secrets(rules: AccessRules) -> AccessRules:
    accounts = [msgspec.structs.replace(account, secret_key=None) for account in rules.plain_access_configs]
    return msgspec.structs.replace(rules, plain_access_configs=accounts)
