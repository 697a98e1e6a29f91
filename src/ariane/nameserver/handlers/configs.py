"""Key-value pairs, and settings for those who ask. No request changes a setting or names a file (CVE-2023-37582)."""

import logging
from dataclasses import dataclass

from ariane.errors import RequestFailed
from ariane.nameserver.key_values import KeyValues
from ariane.nameserver.settings import NameserverSettings
from ariane.rpc.handlers import Call, handles
from ariane.settings import to_properties
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer
from ariane.wire.requests.configs import (
    DeleteKeyValue,
    GetKeyValue,
    GetNameserverSettings,
    KeyValueAnswer,
    KeyValueTable,
    KeyValueTableAnswer,
    ListKeyValues,
    PutKeyValue,
    SettingsAnswer,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConfigHandlers:
    settings: NameserverSettings
    pairs: KeyValues

    @handles(PutKeyValue)
    def put(self, ask: PutKeyValue, call: Call) -> Answer:
        self.pairs.put(ask.namespace, ask.key, ask.value)
        log.info("pair put", extra={"namespace": ask.namespace, "key": ask.key, "peer": call.connection.peer})
        return Answer()

    @handles(GetKeyValue)
    def get(self, ask: GetKeyValue, call: Call) -> KeyValueAnswer:
        value = self.pairs.get(ask.namespace, ask.key)
        if value is None:
            raise RequestFailed(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {ask.namespace} Key: {ask.key}"
            )
        return KeyValueAnswer(value=value)

    @handles(DeleteKeyValue)
    def delete(self, ask: DeleteKeyValue, call: Call) -> Answer:
        self.pairs.delete(ask.namespace, ask.key)
        log.info("pair deleted", extra={"namespace": ask.namespace, "key": ask.key, "peer": call.connection.peer})
        return Answer()

    @handles(ListKeyValues)
    def list_namespace(self, ask: ListKeyValues, call: Call) -> KeyValueTableAnswer:
        pairs = self.pairs.namespace(ask.namespace)
        if pairs is None:
            raise RequestFailed(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {ask.namespace}")
        return KeyValueTableAnswer(body=KeyValueTable(table=dict(pairs)))

    @handles(GetNameserverSettings)
    def show_settings(self, ask: GetNameserverSettings, call: Call) -> SettingsAnswer:
        lines = (f"{key}={value}\n" for key, value in sorted(to_properties(self.settings).items()))
        return SettingsAnswer(body="".join(lines))
