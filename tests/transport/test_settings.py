"""The defaults of the transport settings, and the rules between TLS settings."""

from pathlib import Path

import pytest

from ariane.errors import SettingsError
from ariane.transport.settings import ClientAuthentication, TlsMode, TlsSettings, TransportSettings

CERTIFICATE, KEY = Path("server.pem"), Path("server.key")


def test_the_defaults_are_within_the_security_checklist() -> None:
    settings = TransportSettings()
    assert settings.frame_bytes_max == 16 * 1024 * 1024
    assert settings.header_bytes_max == 256 * 1024
    assert (settings.first_frame_timeout_s, settings.frame_timeout_s, settings.idle_timeout_s) == (5, 10, 120)
    assert settings.write_buffer_bytes_max == 4 * 1024 * 1024


def test_a_header_cannot_be_longer_than_its_frame() -> None:
    with pytest.raises(SettingsError, match="a header is part of its frame"):
        TransportSettings(frame_bytes_max=64 * 1024, header_bytes_max=64 * 1024 + 1)


def test_enforcing_needs_a_certificate() -> None:
    with pytest.raises(SettingsError, match="enforcing, which needs"):
        TlsSettings(mode=TlsMode.ENFORCING)
    assert TlsSettings(mode=TlsMode.ENFORCING, certificate=CERTIFICATE, key=KEY).certificate == CERTIFICATE


def test_a_certificate_and_its_key_come_together() -> None:
    with pytest.raises(SettingsError, match=r"tls\.key is missing"):
        TlsSettings(certificate=CERTIFICATE)
    with pytest.raises(SettingsError, match=r"tls\.certificate is missing"):
        TlsSettings(key=KEY)


def test_asking_clients_for_certificates_needs_something_to_verify_them_against() -> None:
    with pytest.raises(SettingsError, match=r"tls\.client_authentication is require, which needs tls\.trust"):
        TlsSettings(client_authentication=ClientAuthentication.REQUIRE)
