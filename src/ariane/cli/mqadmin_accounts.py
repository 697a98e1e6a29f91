"""mqadmin's commands for access control."""

import click

from ariane.cli.asking import tell_missing
from ariane.cli.mqadmin_shape import PLACE, Option, apache, print_json, print_table
from ariane.cli.mqadmin_words import day_and_second
from ariane.client.admin import Admin

_VERSIONS = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"
_ACCESS_KEY = Option("a", "accessKey", "access_key", "The account.", example="operator")


@apache(
    "updateAclConfig",
    *PLACE,
    _ACCESS_KEY,
    Option("s", "secretKey", "secret_key", "Its secret."),
    Option("w", "whiteRemoteAddress", "white_address", "Where it needs no signature."),
    Option("i", "defaultTopicPerm", "default_topic_perm", "DENY, PUB, SUB or PUB|SUB."),
    Option("u", "defaultGroupPerm", "default_group_perm", "DENY, PUB, SUB or PUB|SUB."),
    Option("t", "topicPerms", "topic_perms", "orders=PUB|SUB,audit=SUB"),
    Option("g", "groupPerms", "group_perms", "billing=SUB,test=DENY"),
    Option("m", "admin", "is_admin", "Whether it may do everything.", type=bool, default=False),
)
async def update_acl_config(
    admin: Admin,
    access_key: str,
    secret_key: str | None,
    white_address: str | None,
    default_topic_perm: str | None,
    default_group_perm: str | None,
    topic_perms: str | None,
    group_perms: str | None,
    is_admin: bool,
    broker: str | None,
    cluster: str | None,
) -> None:
    """Make an account, or change what is named."""
    done = await admin.accounts.put(
        access_key,
        secret_key=secret_key,
        admin=is_admin,
        white_address=white_address,
        default_topic_perm=default_topic_perm,
        default_group_perm=default_group_perm,
        topic_perms=_perms(topic_perms),
        group_perms=_perms(group_perms),
        broker=broker,
        cluster=cluster,
    )
    for one in done:
        click.echo(f"create or update plain access config to {one.address} success.")


def _perms(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(name and perm for name, _, perm in pairs):
        raise click.UsageError(f"{text!r} is no NAME=PERM,NAME=PERM", click.get_current_context())
    return {name: perm for name, _, perm in pairs}


@apache("deleteAccessConfig", *PLACE, _ACCESS_KEY)
async def delete_access_config(admin: Admin, access_key: str, broker: str | None, cluster: str | None) -> None:
    """Delete an account. Does not ask."""
    for one in await admin.accounts.delete(access_key, broker=broker, cluster=cluster):
        click.echo(f"delete plain access config account from {one.address} success.")
    click.echo(f"account's accesskey is:{access_key}")


@apache("clusterAclConfigVersion", *PLACE)
async def cluster_acl_config_version(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show which edition of its rules each broker has."""
    told = await admin.accounts.file_versions(broker=broker, cluster=cluster)
    headings = ["Cluster Name", "Broker Name", "Broker Addr", "AclFilePath", "AclConfigVersionNum", "AclLastUpdateTime"]
    rows = [
        (one.cluster, one.name, one.address, file, version.counter, day_and_second(version.timestamp))
        for one, versions in told.answers.items()
        for file, version in versions.items()
    ]
    print_table(_VERSIONS, headings if cluster is not None else (), rows)  # Apache's has no headings for one broker
    click.echo(f"get {'broker' if cluster is None else 'cluster'}'s plain access config version success.")
    return tell_missing(told.failures)


@apache("getAccessConfigSubCommand", *PLACE)
async def get_access_config(admin: Admin, broker: str | None, cluster: str | None) -> int:
    """Show the accounts and white lists of brokers, as JSON, without secrets."""
    told = await admin.accounts.rules(broker=broker, cluster=cluster)
    for one, rules in told.answers.items():
        accounts = [
            {
                "accessKey": account.access_key,
                "whiteRemoteAddress": account.white_remote_address,
                "admin": account.admin,
                "defaultTopicPerm": account.default_topic_perm,
                "defaultGroupPerm": account.default_group_perm,
                "topicPerms": account.topic_perms,
                "groupPerms": account.group_perms,
            }
            for account in rules.plain_access_configs
        ]
        print_json({"brokerAddr": one.address, "globalWhiteAddrs": rules.global_white_addrs, "accounts": accounts})
    return tell_missing(told.failures)


@apache(
    "updateGlobalWhiteAddr",
    *PLACE,
    Option("g", "globalWhiteRemoteAddresses", "addresses", "Joined by commas.", example="10.0.0.*"),
)
async def update_global_white_addr(admin: Admin, addresses: str, broker: str | None, cluster: str | None) -> None:
    """Replace the list of addresses from which everybody may do everything."""
    done = await admin.accounts.set_white_list(filter(None, addresses.split(",")), broker=broker, cluster=cluster)
    for one in done:
        click.echo(f"update global white remote addresses to {one.address} success.")
