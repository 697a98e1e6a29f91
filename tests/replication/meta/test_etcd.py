"""Access to etcd: several endpoints, killed and paused; TLS, accounts, versions, answers that are not etcd's."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from ariane.errors import (
    MetaError,
    MetaOutcomeUnknown,
    MetaRefused,
    MetaUnavailable,
    MetaWatchEnded,
    SettingsError,
)
from ariane.model.address import Address
from ariane.replication.meta import Compare, Field, Put, Transaction
from ariane.replication.meta.etcd import EtcdStore, bad_version
from ariane.settings import Secret
from ariane.transport.tls import client_context
from tests.replication.meta.etcd_servers import EtcdNode, running_etcd
from tests.replication.meta.test_meta import next_change, only, put


@pytest.fixture(scope="module")
def three() -> Iterator[list[EtcdNode]]:
    with running_etcd(3) as nodes:
        yield nodes


def creation(key: str) -> Transaction:
    return Transaction((Compare(key, Field.CREATED, 0),), (Put(key, b"mine"),))


async def retried(store: EtcdStore, transaction: Transaction) -> None:
    """Until etcd has it, at any of its members: the comparison makes that harmless."""
    while True:
        try:
            await store.transact(transaction)
        except (MetaUnavailable, MetaOutcomeUnknown):
            await asyncio.sleep(0.05)
        else:
            return


# --- three nodes ---


async def test_an_endpoint_that_is_dead_costs_nothing_but_the_next_try(three: list[EtcdNode]) -> None:
    follower = next(node for node in three if not node.is_leader())
    others = [node.client for node in three if node is not follower]
    async with EtcdStore.open([follower.client, *others]) as store:
        await put(store, "/dead/before")
        follower.kill()
        try:
            assert len((await store.read("/dead/")).keys) == 1
            await put(store, "/dead/after")
        finally:
            follower.start()
            follower.wait_until_ready()


async def test_what_was_committed_survives_the_leader_and_a_lease_does_too(three: list[EtcdNode]) -> None:
    leader = next(node for node in three if node.is_leader())
    others = [node.client for node in three if node is not leader]
    async with EtcdStore.open([leader.client, *others]) as store:
        lease = (await store.grant(5)).id
        await put(store, "/leader/leased", lease=lease)
        await put(store, "/leader/kept")
        leader.kill()
        try:
            await retried(store, creation("/leader/after"))
            assert len((await store.read("/leader/")).keys) == 3
            assert await store.keep_alive(lease) >= 5
            assert await store.keep_alive(lease) >= 5
        finally:
            leader.start()
            leader.wait_until_ready()
    async with EtcdStore.open([leader.client]) as store:  # the one that came back has all of it, too
        assert len((await store.read("/leader/")).keys) >= 2


async def test_an_unanswered_transaction_is_unknown_and_may_be_done_later(three: list[EtcdNode]) -> None:
    leader = next(node for node in three if node.is_leader())
    others = [node for node in three if node is not leader]
    async with EtcdStore.open([leader.client]) as store, EtcdStore.open([others[0].client]) as witness:
        await put(store, "/late/before")  # the connection stands
        for node in others:
            node.pause()
        try:
            with pytest.raises(MetaOutcomeUnknown):
                await store.transact(creation("/late/a"))
        finally:
            for node in others:
                node.resume()
        while True:  # the leader had it in its log, and it is done now, or never: the comparison decides
            try:
                outcome = await witness.transact(creation("/late/a"))
                break
            except (MetaUnavailable, MetaOutcomeUnknown):
                await asyncio.sleep(0.05)
        found = await only(witness, "/late/a")
        assert found.value == b"mine"
        assert found.create_revision <= outcome.revision


async def test_keepalives_go_on_at_another_endpoint(three: list[EtcdNode]) -> None:
    follower = next(node for node in three if not node.is_leader())
    others = [node.client for node in three if node is not follower]
    async with EtcdStore.open([follower.client, *others]) as store:
        lease = (await store.grant(30)).id
        await store.keep_alive(lease)
        follower.pause()
        try:
            assert await store.keep_alive(lease) >= 29
        finally:
            follower.resume()


async def test_a_watch_at_a_paused_endpoint_hangs_and_a_new_one_is_opened_elsewhere(three: list[EtcdNode]) -> None:
    follower = next(node for node in three if not node.is_leader())
    other = next(node for node in three if node is not follower)
    async with EtcdStore.open([other.client, follower.client]) as store:  # the first watch is at the second
        begin = await put(store, "/watched")
        async with store.watch("/watched", begin + 1) as hanging, store.watch("/watched", begin + 1) as live:
            follower.pause()
            try:
                change = asyncio.ensure_future(next_change(hanging))
                await put(store, "/watched", b"new")
                assert (await next_change(live)).changes[0].current is not None
                assert not change.done()
            finally:
                follower.resume()
            assert (await change).changes[0].revision > begin


async def test_a_watch_ends_with_its_endpoint(three: list[EtcdNode]) -> None:
    follower = next(node for node in three if not node.is_leader())
    other = next(node for node in three if node is not follower)
    async with EtcdStore.open([other.client, follower.client]) as store:
        begin = await put(store, "/ends")
        try:
            async with store.watch("/ends", begin) as changes:
                await next_change(changes)
                follower.kill()
                with pytest.raises(MetaWatchEnded):
                    await next_change(changes)
        finally:
            follower.kill()
            follower.start()
            follower.wait_until_ready()


async def test_without_a_majority_nothing_is_done_that_is_reported_as_done(three: list[EtcdNode]) -> None:
    alive, *dead = three
    for node in dead:
        node.kill()
    try:
        async with EtcdStore.open([alive.client]) as store:
            with pytest.raises(MetaOutcomeUnknown):
                await store.transact(creation("/minority"))
            with pytest.raises(MetaUnavailable):
                await store.read("/minority")
    finally:
        for node in dead:
            node.start()
        for node in dead:
            node.wait_until_ready()


# --- TLS and accounts ---


async def test_tls_with_a_certificate_of_the_client(tmp_path: Path) -> None:
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("member-1")
    authority.cert_pem.write_to_path(trust := tmp_path / "ca.pem")
    files = {}
    for name, issued in (("server", server), ("client", client)):
        issued.private_key_pem.write_to_path(key := tmp_path / f"{name}.key")
        with (certificate := tmp_path / f"{name}.pem").open("wb") as chain:
            for part in issued.cert_chain_pems:
                chain.write(part.bytes())
        files[name] = (certificate, key)
    options = [
        *("--cert-file", str(files["server"][0]), "--key-file", str(files["server"][1])),
        *("--trusted-ca-file", str(trust), "--client-cert-auth"),
    ]
    context = client_context(trust, *files["client"])
    with running_etcd(1, options, context) as (node,):
        async with EtcdStore.open([node.client], context) as store:
            begin = await put(store, "/tls")
            async with store.watch("/tls", begin) as changes:
                assert (await next_change(changes)).revision >= begin
            assert list(await store.versions()) == [node.client]
        async with EtcdStore.open([node.client], client_context(trust)) as without_certificate:
            with pytest.raises(MetaError):
                await without_certificate.read("/tls")
        async with EtcdStore.open([node.client], client_context()) as without_trust:
            with pytest.raises(MetaUnavailable, match="certificate"):
                await without_trust.read("/tls")


def enable_accounts(node: EtcdNode) -> None:
    node.post("/v3/auth/role/add", {"name": "root"})
    node.post("/v3/auth/role/add", {"name": "group"})
    permission = {"permType": "READWRITE", "key": "L2dyb3VwLw==", "range_end": "L2dyb3VwMA=="}  # /group/
    node.post("/v3/auth/role/grant", {"name": "group", "perm": permission})
    for user, role in (("root", "root"), ("member", "group")):
        node.post("/v3/auth/user/add", {"name": user, "password": f"{user} secret"})
        node.post("/v3/auth/user/grant", {"user": user, "role": role})
    node.post("/v3/auth/enable", {})


async def test_an_account_may_do_what_its_role_allows() -> None:
    with running_etcd(options=["--auth-token-ttl", "2"]) as (node,):
        enable_accounts(node)
        async with EtcdStore.open([node.client], user="member", password=Secret("member secret")) as store:
            lease = (await store.grant(30)).id
            begin = await put(store, "/group/a", lease=lease)
            assert await store.keep_alive(lease) > 0
            async with store.watch("/group/", begin) as changes:
                assert (await next_change(changes)).changes[0].key == "/group/a"
            with pytest.raises(MetaRefused, match="permission denied"):
                await store.read("/elsewhere")
            with pytest.raises(MetaRefused, match="permission denied"):
                await put(store, "/elsewhere")
            store._token = "of-an-earlier-life.7"
            assert (await only(store, "/group/a")).lease == lease
        async with EtcdStore.open([node.client], user="member", password=Secret("wrong")) as store:
            with pytest.raises(MetaRefused, match="refuses user member"):
                await store.read("/group/")
        async with EtcdStore.open([node.client]) as store:
            with pytest.raises(MetaError, match="user name is empty"):
                await store.read("/group/")


@pytest.mark.parametrize(("user", "password"), [("a", None), (None, Secret("b"))])
def test_user_and_password_come_together(user: str | None, password: Secret | None) -> None:
    with pytest.raises(SettingsError, match="together"):
        EtcdStore([Address("127.0.0.1", 2379)], user=user, password=password)


def test_at_least_one_endpoint_is_needed() -> None:
    with pytest.raises(SettingsError, match="no endpoint"):
        EtcdStore([])


# --- versions ---


@pytest.mark.parametrize("version", ["3.5.0", "3.5.1", "3.5.2", "3.5.5", "3.4.21", "3.3.27", "2.3.8", "", "newest"])
def test_versions_that_may_lose_committed_writes_are_recognised(version: str) -> None:
    assert bad_version(version) is not None


@pytest.mark.parametrize("version", ["3.4.22", "3.4.23", "3.5.3", "3.5.4", "3.5.6", "3.5.16", "3.6.0", "4.0.0-rc.1"])
def test_other_versions_are_taken(version: str) -> None:
    assert bad_version(version) is None


async def test_the_version_of_each_endpoint_that_answers_is_found(etcd: EtcdNode) -> None:
    dead = Address("127.0.0.1", 1)
    async with EtcdStore.open([dead, etcd.client]) as store:
        versions = await store.versions()
    assert list(versions) == [etcd.client]
    assert versions[etcd.client].startswith("3.")


# --- what is not etcd ---


@asynccontextmanager
async def impostor(body: bytes, status: str = "200 OK") -> AsyncIterator[EtcdStore]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(
            b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, EtcdStore.open([Address("127.0.0.1", server.sockets[0].getsockname()[1])]) as store:
        yield store


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"header":{"revision":"many"}}',
        b'{"header":{"revision":"1"},"kvs":[{"key":"%"}]}',
        b'{"header":{"revision":"1"},"kvs":[{"key":"/w=="}]}',
        b'{"header":{"revision":"1"},"kvs":[{"key":"YQ==","mod_revision":"99999999999999999999999"}]}',
        b'{"header":{"revision":"1"},"more":true}',
    ],
)
async def test_an_answer_that_is_not_etcds_is_an_error(body: bytes) -> None:
    async with impostor(body) as store:
        with pytest.raises(MetaError):
            await store.read("/")


async def test_an_error_of_a_transaction_leaves_its_outcome_open() -> None:
    async with impostor(b'{"code":14,"message":"etcdserver: request timed out"}', "503 Unavailable") as store:
        with pytest.raises(MetaOutcomeUnknown, match="request timed out"):
            await store.transact(creation("/a"))
        with pytest.raises(MetaUnavailable, match="request timed out"):
            await store.read("/a")


async def test_a_transaction_that_never_left_was_not_done() -> None:
    async with EtcdStore.open([Address("127.0.0.1", 1), Address("127.0.0.1", 1)]) as store:
        with pytest.raises(MetaUnavailable):
            await store.transact(creation("/a"))
