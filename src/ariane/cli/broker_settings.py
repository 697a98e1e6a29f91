"""The broker's settings, as its command and `ariane config show` load them."""

from collections.abc import Mapping
from pathlib import Path

from ariane.broker.settings import BrokerSettings
from ariane.broker.unsupported_settings import UNSUPPORTED
from ariane.settings import Loaded, load

_APACHE_VARIABLE = "NAMESRV_ADDR"
_OUR_VARIABLE = "ARIANE_BROKER__NAMESRV_ADDR"


def load_broker_settings(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> Loaded[BrokerSettings]:
    """Apache's own variable counts when nothing else names a nameserver."""
    loaded = load(BrokerSettings, section="broker", file=file, environ=environ, flags=flags, unsupported=UNSUPPORTED)
    if loaded.origins["namesrv_addr"] != "default" or not environ.get(_APACHE_VARIABLE):
        return loaded
    again = load(
        BrokerSettings,
        section="broker",
        file=file,
        environ={**environ, _OUR_VARIABLE: environ[_APACHE_VARIABLE]},
        flags=flags,
        unsupported=UNSUPPORTED,
    )
    return Loaded(again.settings, {**again.origins, "namesrv_addr": _APACHE_VARIABLE}, again.warnings)
