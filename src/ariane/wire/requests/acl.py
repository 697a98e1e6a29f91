"""Requests of 4.x access control: accounts and white lists of one broker.

From 4.9 on, Apache's tool can name the file that a change is written to (`aclFileFullPath`). That field is omitted here
on purpose: no request may name a file.
"""

from ariane.wire.codes import RequestCode
from ariane.wire.exchange import ServedBy, request
from ariane.wire.fields import Request, Response
from ariane.wire.json.body import JsonBody


@request(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, served_by=ServedBy.BROKER)
class UpdateAccount(Request[Response], frozen=True, kw_only=True):
    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    """`name=PERM`, joined by commas."""
    group_perms: str | None = None


@request(RequestCode.DELETE_ACL_CONFIG, served_by=ServedBy.BROKER)
class DeleteAccount(Request[Response], frozen=True):
    access_key: str


class AccessVersionResponse(Response, frozen=True, kw_only=True):
    version: str
    """A DataVersion as JSON text."""
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None
    """From 4.9 on: a DataVersion for each file, as JSON text."""


@request(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, served_by=ServedBy.BROKER)
class GetAccessVersion(Request[AccessVersionResponse], frozen=True):
    pass


@request(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, served_by=ServedBy.BROKER)
class UpdateGlobalWhiteList(Request[Response], frozen=True):
    global_white_addrs: str
    """Joined by commas."""


class Account(JsonBody, frozen=True):
    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] = []
    group_perms: list[str] = []


class AccessRules(JsonBody, frozen=True):
    global_white_addrs: list[str] = []
    plain_access_configs: list[Account] = []


class AccessRulesResponse(Response, frozen=True):
    body: AccessRules = AccessRules()


@request(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, served_by=ServedBy.BROKER)
class GetAccessRules(Request[AccessRulesResponse], frozen=True):
    pass
