"""Admin requests for accounts and white lists. Only administrators pass the guard (broker/acl/guard.py)."""

from dataclasses import dataclass

import msgspec

from ariane.acl.file import MASK, comma_list
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
    """None when access control is disabled: there are no accounts then."""

    @handles(UpdateAccount)
    def update_account(self, request: UpdateAccount, call: Call) -> Response:
        access = self._enabled()
        try:
            access.put_account(request)
        except (ValueError, SettingsError, OSError) as error:
            raise RequestFailed(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, _cause(error)) from error
        return Response()

    @handles(DeleteAccount)
    def delete_account(self, request: DeleteAccount, call: Call) -> Response:
        access = self._enabled()
        try:
            deleted = access.delete_account(request.access_key)
        except (ValueError, SettingsError, OSError) as error:
            raise RequestFailed(ResponseCode.DELETE_ACL_CONFIG_FAILED, _cause(error)) from error
        if not deleted:
            raise RequestFailed(ResponseCode.DELETE_ACL_CONFIG_FAILED, f"account {request.access_key} does not exist")
        return Response()

    @handles(UpdateGlobalWhiteList)
    def update_white_list(self, request: UpdateGlobalWhiteList, call: Call) -> Response:
        access = self._enabled()
        try:
            access.set_white_list(comma_list(request.global_white_addrs))
        except (ValueError, SettingsError, OSError) as error:
            raise RequestFailed(ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, _cause(error)) from error
        return Response()

    @handles(GetAccessVersion)
    def version(self, request: GetAccessVersion, call: Call) -> AccessVersionResponse:
        version = self._enabled().rules.version
        return AccessVersionResponse(
            version=_json(version),
            # mqadmin 4.9 reads a version per file here. There is one file; only its name is shown, not its path.
            all_acl_file_version=_json({self.settings.acl_file.name: version}),
            broker_name=self.settings.name,
            broker_addr=str(self.settings.advertised),
            cluster_name=self.settings.cluster,
        )

    @handles(GetAccessRules)
    def rules(self, request: GetAccessRules, call: Call) -> AccessRulesResponse:
        document = self._enabled().document
        return AccessRulesResponse(
            body=AccessRules(
                global_white_addrs=list(document.get("globalWhiteRemoteAddresses") or []),
                plain_access_configs=[_masked(entry) for entry in document.get("accounts") or []],
            )
        )

    def _enabled(self) -> AccessControl:
        if self.access is None:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                "access control is disabled, so there are no accounts: set aclEnable=true and restart the broker",
            )
        return self.access


def _masked(entry: dict[str, object]) -> Account:
    """Apache's response contains the secrets, which only help to impersonate an account.

    Here it contains a mask: mqadmin and dashboards require a secret when they change an account, and send back what
    they were shown.
    """
    shown = {name: value for name, value in entry.items() if value} | {"secretKey": MASK}
    return msgspec.convert(shown, Account, strict=False)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _cause(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot save the access file: {error.strerror}; check the disk's free space and the file's permissions"
    return str(error)
