"""What `ariane up` will start: names, ports and directories, before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ariane.errors import SettingsError

if TYPE_CHECKING:
    from ariane.broker.settings import BrokerSettings
    from ariane.nameserver.settings import NameserverSettings

BROKERS_MAX = 16
_PORT_DISTANCE = 10  # each broker also takes the port two below its own
_PORT_MAX = 65_535
_AUTO_CREATE = {"ARIANE_BROKER__AUTO_CREATE_TOPICS": "true"}
"""Here the first send makes a topic: whoever tries things out has not planned them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpPlan:
    data: Path
    port: int
    broker_port: int
    brokers: int = 1

    def __post_init__(self) -> None:
        last = self.broker_port + (self.brokers - 1) * _PORT_DISTANCE
        if last > _PORT_MAX:
            raise SettingsError(f"{self.brokers} brokers from port {self.broker_port} on need port {last}: go lower")

    @property
    def names(self) -> list[str]:
        return [f"broker-{letter}" for letter in "abcdefghijklmnop"[: self.brokers]]

    @property
    def idle(self) -> list[str]:
        """Brokers that have messages here and are not started this time."""
        known = sorted(path.name for path in self.data.glob("broker-?") if (path / "commitlog").is_dir())
        return [name for name in known if name not in self.names]

    def store(self, name: str) -> Path:
        return self.data / name

    def broker_flags(self, name: str, namesrv: str) -> dict[str, object]:
        place = self.names.index(name) * _PORT_DISTANCE
        return {
            "name": name,
            "port": self.broker_port + place if self.broker_port else 0,
            "namesrv_addr": namesrv,
            "store.root": str(self.store(name)),
        }

    def nameserver(self, environ: Mapping[str, str]) -> "NameserverSettings":
        from ariane.nameserver.settings import NameserverSettings
        from ariane.settings import load

        flags = {"port": self.port, "kv_config_path": str(self.data / "namesrv" / "kvConfig.json")}
        return load(
            NameserverSettings, section="nameserver", file=None, environ=environ, flags=flags, unsupported={}
        ).settings


def up_broker_settings(flags: Mapping[str, object], environ: Mapping[str, str]) -> "BrokerSettings":
    from ariane.cli.broker_settings import load_broker_settings

    return load_broker_settings(None, {**_AUTO_CREATE, **environ}, flags).settings
