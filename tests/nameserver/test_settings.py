"""Nameserver settings: an Apache namesrv.conf, safe defaults, and keys that have no effect."""

from pathlib import Path

import pytest

from ariane.errors import SettingsError
from ariane.nameserver.settings import UNSUPPORTED, NameserverSettings
from ariane.settings import LoadedSettings, describe, load, to_properties
from ariane.transport.settings import TlsMode, TransportSettings

# A namesrv.conf as an operator of RocketMQ 4.x would have it.
APACHE_CONF = """\
# cluster one
listenPort = 9877
bindAddress=0.0.0.0
rocketmqHome=/opt/rocketmq
kvConfigPath = /var/lib/namesrv/kvConfig.json
orderMessageEnable=true
serverWorkerThreads=16
serverChannelMaxIdleTimeSeconds=60
writeBufferHighWaterMark=0
scanNotActiveBrokerInterval=5000
tls.server.mode=disabled
tls.server.keyPassword=hunter2
"""


def load_text(tmp_path: Path, text: str, name: str = "namesrv.conf") -> LoadedSettings[NameserverSettings]:
    file = tmp_path / name
    file.write_text(text)
    return load(NameserverSettings, section="nameserver", file=file, environ={}, flags={}, unsupported=UNSUPPORTED)


def test_an_apache_namesrv_conf_works_as_it_is(tmp_path: Path) -> None:
    loaded = load_text(tmp_path, APACHE_CONF)
    settings = loaded.settings
    assert (settings.host, settings.port) == ("0.0.0.0", 9877)
    assert settings.kv_config_path == Path("/var/lib/namesrv/kvConfig.json")
    assert settings.order_message_enable
    assert settings.scan_interval_s == 5
    assert settings.transport == TransportSettings(idle_timeout_s=60)
    assert settings.tls.mode is TlsMode.DISABLED
    assert [warning.split(" is not used: ")[0].rpartition(": ")[2] for warning in loaded.warnings] == [
        "rocketmqHome",
        "serverWorkerThreads",
    ]


def test_the_defaults_listen_on_this_machine_only_and_write_no_file() -> None:
    settings = NameserverSettings()
    assert (settings.host, settings.port) == ("127.0.0.1", 9876)
    assert settings.kv_config_path is None


def test_an_empty_bind_address_does_not_open_every_interface(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="bindAddress = '': the value is empty"):
        load_text(tmp_path, "bindAddress=")


def test_to_properties_uses_rocketmq_keys_and_units_and_hides_the_password(tmp_path: Path) -> None:
    properties = to_properties(load_text(tmp_path, APACHE_CONF).settings)
    assert properties["listenPort"] == "9877"
    assert properties["scanNotActiveBrokerInterval"] == "5000"
    assert properties["serverChannelMaxIdleTimeSeconds"] == "60"
    assert properties["orderMessageEnable"] == "true"
    assert not any("assword" in key or "hunter2" in text for key, text in properties.items())


def test_no_key_is_both_supported_and_unsupported_or_declared_twice() -> None:
    keys = [key.name for spec in describe(NameserverSettings) for key in spec.keys]
    assert len(keys) == len(set(keys))
    assert not set(keys) & set(UNSUPPORTED)


def test_no_setting_that_names_a_file_an_address_or_a_secret_can_change_at_run_time() -> None:
    for spec in describe(NameserverSettings):
        if spec.secret or spec.kind.type is Path or spec.name in ("host", "port"):
            assert not spec.reloadable, spec.name


def test_every_default_is_within_its_own_range() -> None:
    for spec in describe(NameserverSettings):
        if spec.default is not None:
            assert spec.kind.check(spec.default) == spec.default


@pytest.mark.parametrize("text", ["[nameserver]\nlisten_port = 1\n", "[nameserver]\nprot = 1\n"])
def test_a_misspelt_port_is_led_to_the_right_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="did you mean 'port'"):
        load_text(tmp_path, text, "ariane.toml")
