"""TLS connections of a client."""

from pathlib import Path

import pytest
import trustme

from ariane.client.core.instance import Instance
from ariane.client.settings import ClientSettings, ClientTlsSettings
from ariane.errors import ConnectFailed, SettingsError
from ariane.transport.settings import TlsMode, TlsSettings
from ariane.wire.requests.clients import Heartbeat
from tests.client.scripted_broker import ScriptedBroker
from tests.transport.peers import serving


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """The paths of the CA certificate, and of a server certificate with its key."""
    authority = trustme.CA()
    trust, own = folder / "authority.pem", folder / "server.pem"
    authority.cert_pem.write_to_path(str(trust))
    authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(str(own))
    return trust, own


async def beat(own: Path, tls: ClientTlsSettings) -> int:
    """How many heartbeats a TLS-only broker has received."""
    broker = ScriptedBroker()
    server_tls = TlsSettings(mode=TlsMode.ENFORCING, certificate=own, key=own)
    async with serving(broker.receive, tls=server_tls) as server, Instance.open(ClientSettings(tls=tls)) as instance:
        try:
            await instance.call(str(server.address), Heartbeat())
        except ConnectFailed:
            return -1
    return len(broker.received)


async def test_a_client_speaks_tls_with_a_server_it_can_verify(tmp_path: Path) -> None:
    trust, own = certificate(tmp_path, "127.0.0.1")
    assert await beat(own, ClientTlsSettings(enable=True, trust=trust)) == 1


async def test_a_server_with_another_name_is_refused_unless_verification_is_off(tmp_path: Path) -> None:
    trust, own = certificate(tmp_path, "somebody.example")
    assert await beat(own, ClientTlsSettings(enable=True, trust=trust)) == -1
    assert await beat(own, ClientTlsSettings(enable=True, verify=False)) == 1


async def test_the_error_names_a_missing_trust_file(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.pem"
    with pytest.raises(SettingsError, match=r"nowhere\.pem"):
        await beat(missing, ClientTlsSettings(enable=True, trust=missing))
