"""Accounts and white lists over the wire. The guard lets only administrators come so far (broker/acl/guard.py)."""

from dataclasses import dataclass

import msgspec

from ariane.broker.acl.file import comma_list
from ariane.broker.acl.guard import AccessControl
from ariane.broker.settings import BrokerSettings
from ariane.errors import RequestFailed, SettingsError
from ariane.rpc.handlers import Call, handles
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.requests.acl import (
    AccessRules,
    AccessRulesResponse,
    AccessVersionResponse,
    Account,
    DeleteAccount,
    GetAccessRules,
    GetAccessVersion,
    UpdateAccount,
    UpdateGlobalWhiteList,
)


@dataclass(frozen=True)
class AccessHandlers:
    settings: BrokerSettings
    access: AccessControl | None
    """None when access control is off: there are no accounts then."""

    @handles(UpdateAccount)
    def update_account(self, request: UpdateAccount, call: Call) -> Response:
        access = self._switched_on()
        try:
            access.put_account(request)
        except (ValueError, SettingsError, OSError) as error:
            raise RequestFailed(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, _cause(error)) from error
        return Response()

    @handles(DeleteAccount)
    def delete_account(self, request: DeleteAccount, call: Call) -> Response:
        access = self._switched_on()
        try:
            deleted = access.delete_account(request.access_key)
        except (ValueError, SettingsError, OSError) as error:
            raise RequestFailed(ResponseCode.DELETE_ACL_CONFIG_FAILED, _cause(error)) from error
        if not deleted:
            raise RequestFailed(ResponseCode.DELETE_ACL_CONFIG_FAILED, f"there is no account {request.access_key}")
        return Response()

    @handles(UpdateGlobalWhiteList)
    def update_white_list(self, request: UpdateGlobalWhiteList, call: Call) -> Response:
        access = self._switched_on()
        try:
            access.set_white_list(comma_list(request.global_white_addrs))
        except (ValueError, SettingsError, OSError) as error:
            raise RequestFailed(ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, _cause(error)) from error
        return Response()

    @handles(GetAccessVersion)
    def version(self, request: GetAccessVersion, call: Call) -> AccessVersionResponse:
        version = self._switched_on().rules.version
        return AccessVersionResponse(
            version=_json(version),
            # 4.9's tool reads a version per file from here. Ours is one file, and where it lies is nobody's business.
            all_acl_file_version=_json({self.settings.acl_file.name: version}),
            broker_name=self.settings.name,
            broker_addr=str(self.settings.advertised),
            cluster_name=self.settings.cluster,
        )

    @handles(GetAccessRules)
    def rules(self, request: GetAccessRules, call: Call) -> AccessRulesResponse:
        document = self._switched_on().document
        return AccessRulesResponse(
            body=AccessRules(
                global_white_addrs=list(document.get("globalWhiteRemoteAddresses") or []),
                plain_access_configs=[_without_secret(entry) for entry in document.get("accounts") or []],
            )
        )

    def _switched_on(self) -> AccessControl:
        if self.access is None:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                "access control is off, so there are no accounts: set aclEnable=true and restart the broker",
            )
        return self.access


def _without_secret(entry: dict[str, object]) -> Account:
    """Apache's answer holds the secrets. They are of use only to somebody who wants to be somebody else."""
    shown = {name: value for name, value in entry.items() if value and name != "secretKey"}
    return msgspec.convert(shown, Account, strict=False)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _cause(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot save the access file: {error.strerror}; check the disk's free space and the file's permissions"
    return str(error)
