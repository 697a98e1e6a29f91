"""Settings of nameservers and brokers, and the nameserver's key-value pairs.

Settings travel as the text of a Java properties file: `name=value` lines.
"""

from ariane.wire.body import JsonBody
from ariane.wire.codes import RequestCode
from ariane.wire.declare import ServedBy, request
from ariane.wire.fields import Answer, Request

# --- key-value pairs


@request(RequestCode.PUT_KV_CONFIG, served_by=ServedBy.NAMESERVER)
class PutKeyValue(Request[Answer], frozen=True):
    namespace: str
    key: str
    value: str


class KeyValueAnswer(Answer, frozen=True):
    value: str | None = None


@request(RequestCode.GET_KV_CONFIG, served_by=ServedBy.NAMESERVER)
class GetKeyValue(Request[KeyValueAnswer], frozen=True):
    namespace: str
    key: str


@request(RequestCode.DELETE_KV_CONFIG, served_by=ServedBy.NAMESERVER)
class DeleteKeyValue(Request[Answer], frozen=True):
    namespace: str
    key: str


class KeyValueTable(JsonBody, frozen=True):
    table: dict[str, str] = {}


class KeyValueTableAnswer(Answer, frozen=True):
    body: KeyValueTable = KeyValueTable()


@request(RequestCode.GET_KVLIST_BY_NAMESPACE, served_by=ServedBy.NAMESERVER)
class ListKeyValues(Request[KeyValueTableAnswer], frozen=True):
    namespace: str


# --- settings


class SettingsAnswer(Answer, frozen=True):
    body: str = ""


@request(RequestCode.GET_NAMESRV_CONFIG, served_by=ServedBy.NAMESERVER)
class GetNameserverSettings(Request[SettingsAnswer], frozen=True):
    pass


@request(RequestCode.UPDATE_NAMESRV_CONFIG, served_by=ServedBy.NAMESERVER)
class UpdateNameserverSettings(Request[Answer], frozen=True):
    body: str = ""


class BrokerSettingsAnswer(Answer, frozen=True):
    version: str | None = None
    """A DataVersion as JSON text."""
    body: str = ""


@request(RequestCode.GET_BROKER_CONFIG, served_by=ServedBy.BROKER)
class GetBrokerSettings(Request[BrokerSettingsAnswer], frozen=True):
    pass


@request(RequestCode.UPDATE_BROKER_CONFIG, served_by=ServedBy.BROKER)
class UpdateBrokerSettings(Request[Answer], frozen=True):
    body: str = ""
