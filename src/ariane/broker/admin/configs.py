"""Admin requests that read settings, and change those declared `reloadable`.

In Apache, anyone who could connect could set any key, the settings were written back to a file, and one key was passed
to a shell (CVE-2023-33246). Here only `reloadable` settings change, until the process ends. No request makes the broker
write a settings file, and secrets are neither returned nor accepted.
"""

import logging
from dataclasses import dataclass, field

from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.clock import Clock
from ariane.errors import RequestFailed, SettingsError
from ariane.model.topic import DataVersion
from ariane.replication.hello import VERSION
from ariane.replication.metadata import VERSION_KEY
from ariane.rpc.handlers import Call, handles
from ariane.settings import change, to_properties
from ariane.settings.properties_file import read_properties
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.json.body import encode_json
from ariane.wire.requests.brokers import BrokerSettingsResponse, GetBrokerSettings, UpdateBrokerSettings

log = logging.getLogger(__name__)

_BODY_CHARACTERS_MAX = 64 * 1024
_CONSTANTS = {"filterServerNums": "0", "useTLS": "false", VERSION_KEY: str(VERSION)}
"""Keys of features that this broker does not have: `mqadmin exportConfigs` fails if they are missing. And one by which
a slave of Ariane knows its master as one."""


@dataclass
class ConfigHandlers:
    settings: BrokerSettings
    topics: Topics
    clock: Clock
    version: DataVersion = field(init=False)

    def __post_init__(self) -> None:
        self.version = DataVersion(timestamp=self.clock.now_ms(), counter=0)

    @handles(GetBrokerSettings)
    def show(self, request: GetBrokerSettings, call: Call) -> BrokerSettingsResponse:
        lines = (f"{key}={value}\n" for key, value in sorted((_CONSTANTS | to_properties(self.settings)).items()))
        return BrokerSettingsResponse(version=encode_json(self.version).decode(), body="".join(lines))

    @handles(UpdateBrokerSettings)
    async def update(self, request: UpdateBrokerSettings, call: Call) -> Response:
        try:
            changed = change(self.settings, _parse_changes(request.body))
        except SettingsError as error:
            log.warning("settings not changed", extra={"peer": call.connection.peer, "reason": str(error)})
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"nothing was changed: {error}") from error
        for name in changed:
            log.warning("setting changed", extra={"setting": name, "peer": call.connection.peer})
        if changed:
            self.version = DataVersion(timestamp=self.clock.now_ms(), counter=self.version.counter + 1)
        if "permission" in changed:
            self.topics.renew_version()
            await self.topics.announced()
        return Response()


def _parse_changes(text: str) -> dict[str, str]:
    if len(text) > _BODY_CHARACTERS_MAX:
        raise SettingsError(
            f"a request may contain at most {_BODY_CHARACTERS_MAX} characters of settings, got {len(text)}"
        )
    changes = {entry.key: entry.value for entry in read_properties(text)}
    return {key: value for key, value in changes.items() if _CONSTANTS.get(key) != value}
