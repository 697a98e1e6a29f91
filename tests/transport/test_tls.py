"""TLS: the three server modes, client certificates, and verification of the server."""

import ssl
from pathlib import Path

import pytest
import trustme

from ariane.clock import Clock
from ariane.errors import ConnectFailed, SettingsError, TransportError
from ariane.transport.pool import Pool
from ariane.transport.server import Server
from ariane.transport.settings import ClientAuthentication, TlsMode, TlsSettings, TransportSettings
from ariane.transport.tls import client_context, server_context
from ariane.wire.frame import Command
from tests.transport.peers import connected, echo, request_frame, serving


class Certificates:
    """A certificate authority with a server's and a client's certificate, as files."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.trust = folder / "authority.pem"
        authority.cert_pem.write_to_path(str(self.trust))
        self.server = self._issue(authority, folder / "server.pem", "127.0.0.1")
        self.client = self._issue(authority, folder / "client.pem", "client.example")

    def _issue(self, authority: trustme.CA, path: Path, name: str) -> Path:
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(str(path))
        return path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def tls(
    certificates: Certificates, mode: TlsMode, client_authentication: ClientAuthentication = ClientAuthentication.NONE
) -> TlsSettings:
    return TlsSettings(
        mode=mode,
        certificate=certificates.server,
        key=certificates.server,
        trust=certificates.trust,
        client_authentication=client_authentication,
    )


async def request(server: Server, context: ssl.SSLContext | None) -> bytes:
    async with Pool.open(TransportSettings(), Clock(), echo, context) as pool:
        return (await pool.call(str(server.address), Command(code=105, body=b"hello"))).body


async def test_permissive_accepts_tls_and_plain_on_one_port(certificates: Certificates) -> None:
    async with serving(tls=tls(certificates, TlsMode.PERMISSIVE)) as server:
        assert await request(server, client_context(certificates.trust)) == b"hello"
        assert await request(server, None) == b"hello"


async def test_enforcing_closes_plain_connections(certificates: Certificates) -> None:
    async with serving(tls=tls(certificates, TlsMode.ENFORCING)) as server:
        assert await request(server, client_context(certificates.trust)) == b"hello"
        async with connected(server) as plain:
            await plain.send(request_frame())
            await plain.wait_closed_by_peer()


async def test_disabled_closes_tls_and_accepts_plain(certificates: Certificates) -> None:
    async with serving(tls=tls(certificates, TlsMode.DISABLED)) as server:
        assert await request(server, None) == b"hello"
        with pytest.raises(ConnectFailed):
            await request(server, client_context(certificates.trust))


async def test_a_client_certificate_can_be_required(certificates: Certificates) -> None:
    async with serving(tls=tls(certificates, TlsMode.ENFORCING, ClientAuthentication.REQUIRE)) as server:
        with_certificate = client_context(certificates.trust, certificates.client)
        assert await request(server, with_certificate) == b"hello"
        with pytest.raises(TransportError):  # TLS 1.3 reports a refused client certificate after the handshake
            await request(server, client_context(certificates.trust))


async def test_a_server_that_cannot_prove_its_name_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    other_authority = Certificates(tmp_path)
    async with serving(tls=tls(certificates, TlsMode.PERMISSIVE)) as server:
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            await request(server, client_context(other_authority.trust))


def test_a_certificate_that_cannot_be_read_is_a_settings_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(SettingsError, match=r"missing\.pem"):
        server_context(TlsSettings(certificate=missing, key=missing))
