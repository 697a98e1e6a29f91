"""Settings for those who ask, and the few that a request may change.

Any key could once be set by anybody who reached the port, written back to a file, and one of them ended in a shell
(CVE-2023-33246). Here only settings declared `reloadable` change, for as long as the process runs; no request makes
this broker write a settings file, and no secret is told or taken.
"""

import logging
from dataclasses import dataclass, field

from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.clock import Clock
from ariane.errors import RequestFailed, SettingsError
from ariane.model.topic import DataVersion
from ariane.rpc.handlers import Call, handles
from ariane.settings import change, to_properties
from ariane.settings.properties_file import read_properties
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.json.body import encode_json
from ariane.wire.requests.brokers import BrokerSettingsResponse, GetBrokerSettings, UpdateBrokerSettings

log = logging.getLogger(__name__)

_BODY_CHARACTERS_MAX = 64 * 1024
_CONSTANTS = {"filterServerNums": "0", "useTLS": "false"}
"""Of features that this broker has not, but `mqadmin exportConfigs` fails on an answer without these keys."""


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
    def update(self, request: UpdateBrokerSettings, call: Call) -> Response:
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
        return Response()


def _parse_changes(text: str) -> dict[str, str]:
    if len(text) > _BODY_CHARACTERS_MAX:
        raise SettingsError(f"a request has at most {_BODY_CHARACTERS_MAX} characters of settings, got {len(text)}")
    wanted = {entry.key: entry.value for entry in read_properties(text)}
    return {key: value for key, value in wanted.items() if _CONSTANTS.get(key) != value}
