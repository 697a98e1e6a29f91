"""The replication port with TLS, as the main port has it."""

from pathlib import Path

import pytest

from ariane.transport.settings import ClientAuthentication, TlsMode, TlsSettings
from tests.replication.pairs import Guide, a_master, a_slave, running_store
from tests.store.stores import draft, put
from tests.transport.peers import until
from tests.transport.test_tls import Certificates, tls


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("native", [False, True], ids=["classic", "native"])
async def test_a_slave_follows_through_tls_with_its_own_certificate(
    tmp_path: Path, certificates: Certificates, native: bool
) -> None:
    theirs = tls(certificates, TlsMode.ENFORCING, ClientAuthentication.REQUIRE)
    ours = TlsSettings(certificate=certificates.client, key=certificates.client)
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service, tls=theirs) as master,
        running_store(tmp_path / "slave") as copy,
    ):
        end = put(service.store, *[draft(b"x" * 1000) for _ in range(30)])[-1].end
        find = Guide(str(master.address), native=native)
        async with a_slave(copy, find, certificate=ours, tls=True, tls_trust=certificates.trust) as slave:
            await until(lambda: slave.log.dispatched_to == end)


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "without a certificate"])
async def test_a_master_that_enforces_tls_refuses_others(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture, with_tls: bool
) -> None:
    theirs = tls(certificates, TlsMode.ENFORCING, ClientAuthentication.REQUIRE)
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service, tls=theirs) as master,
        running_store(tmp_path / "slave") as copy,
    ):
        put(service.store, draft(b"x"))
        find = Guide(str(master.address), native=False)
        async with a_slave(copy, find, tls=with_tls, tls_trust=certificates.trust) as slave:
            await until(lambda: sum("not following the master" in r.message for r in caplog.records) >= 1)
            assert not master.slaves()
            assert slave.log.end == 0


async def test_a_slave_does_not_follow_a_master_that_it_cannot_verify(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        running_store(tmp_path / "master") as service,
        a_master(service, tls=tls(certificates, TlsMode.PERMISSIVE)) as master,
        running_store(tmp_path / "slave") as copy,
        a_slave(copy, Guide(str(master.address), native=False), tls=True),
    ):
        await until(lambda: any("certificate" in str(getattr(r, "reason", "")).lower() for r in caplog.records))
        assert not master.slaves()
