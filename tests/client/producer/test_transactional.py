"""Transactional messages: outcomes and checks."""

from ipaddress import IPv4Address

import pytest

from ariane.client.producer.transactional import COMMIT, ROLLBACK, UNKNOWN, TransactionProducer
from ariane.errors import MessageRejected
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import HostPort, Message, StoredMessage
from ariane.rpc.caller import notify_peer
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.properties import decode_properties
from ariane.wire.record.layout import encode
from ariane.wire.requests.send import CheckTransaction, Decision, EndTransaction
from tests.client.scripted_broker import Cluster, cluster, stored

HOST = HostPort(IPv4Address("127.0.0.1"), 10911)


def producer(servers: Cluster, **options: object) -> TransactionProducer:
    options = {"check": lambda message: UNKNOWN} | options
    return TransactionProducer(servers.nameserver, group="tx", **options)  # type: ignore[arg-type]


async def ends(servers: Cluster, count: int = 1) -> list[EndTransaction]:
    return [
        command.fields(EndTransaction)
        for command in await servers.broker.wait_for_request(RequestCode.END_TRANSACTION, count)
    ]


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK, UNKNOWN])
async def test_the_broker_gets_the_outcome_of_the_local_transaction(decision: Decision) -> None:
    seen: list[tuple[Message, object]] = []

    def execute(message: Message, arg: object) -> Decision:
        seen.append((message, arg))
        return decision

    async with cluster("T") as servers, producer(servers, execute=execute) as sender:
        result = await sender.send_in_transaction("T", b"x", arg="order 17")
        (end,) = await ends(servers)
    (half,) = servers.broker.sends()
    assert half.sys_flag == 4
    properties = decode_properties((half.properties or "").encode())
    assert {"TRAN_MSG": "true", "PGROUP": "tx"}.items() <= properties.items()
    assert seen == [(Message(topic="T", body=b"x"), "order 17")]
    assert (result.decision, result.error) == (decision, None)
    assert result.sent.transaction_id == result.sent.message_id
    assert (end.producer_group, end.msg_id, end.transaction_id) == (
        "tx",
        result.sent.message_id,
        result.sent.message_id,
    )
    assert (end.commit_or_rollback, end.tran_state_table_offset, end.commit_log_offset) == (decision, 7, 0)
    assert servers.broker.received_of(RequestCode.END_TRANSACTION)[0].is_oneway


async def test_the_local_transaction_may_be_async_and_passed_with_the_message() -> None:
    async def execute(message: Message, arg: object) -> Decision:
        return COMMIT

    async with cluster("T") as servers, producer(servers) as sender:
        assert (await sender.send_in_transaction("T", b"x", execute=execute)).decision is COMMIT


async def test_a_local_transaction_that_fails_is_unknown_and_its_error_is_kept() -> None:
    def execute(message: Message, arg: object) -> Decision:
        raise ValueError("no money")

    async with cluster("T") as servers, producer(servers, execute=execute) as sender:
        result = await sender.send_in_transaction("T", b"x")
        (end,) = await ends(servers)
    assert (result.decision, str(result.error), end.commit_or_rollback) == (UNKNOWN, "no money", 0)


async def test_an_invalid_return_value_of_the_local_transaction_is_unknown() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        result = await sender.send_in_transaction("T", b"x", execute=lambda message, arg: True)  # type: ignore[arg-type,return-value]
        assert (result.decision, type(result.error)) == (UNKNOWN, TypeError)
        nothing = await sender.send_in_transaction("T", b"x", execute=lambda message, arg: None)
        assert (nothing.decision, nothing.error) == (UNKNOWN, None)


async def test_a_half_message_stored_less_safely_is_rolled_back() -> None:
    def execute(message: Message, arg: object) -> Decision:
        raise AssertionError("must not run")

    async with cluster("T") as servers, producer(servers, execute=execute) as sender:
        servers.broker.script.append(lambda command: stored(command, code=ResponseCode.FLUSH_DISK_TIMEOUT))
        assert (await sender.send_in_transaction("T", b"x")).decision is ROLLBACK
        assert (await ends(servers))[0].commit_or_rollback == ROLLBACK


async def test_a_transaction_cannot_be_delayed_or_empty() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        with pytest.raises(MessageRejected, match="cannot be delayed"):
            await sender.send_in_transaction("T", b"x", execute=lambda message, arg: COMMIT, delay_level=1)
        with pytest.raises(MessageRejected, match="no local transaction"):
            await sender.send_in_transaction("T", b"x")
        assert servers.broker.sends() == []


def half_message(group: str = "tx") -> bytes:
    return encode(
        StoredMessage(
            topic="T",
            body=b"the body",
            properties={"PGROUP": group, "UNIQ_KEY": "U1", "TRAN_MSG": "true"},
            queue_id=2,
            queue_offset=QueueOffset(5),
            physical_offset=PhysicalOffset(4711),
            sys_flag=0,
            born_timestamp_ms=1,
            born_host=HOST,
            store_timestamp_ms=2,
            store_host=HOST,
        )
    )


def check_request(group: str = "tx") -> CheckTransaction:
    return CheckTransaction(
        tran_state_table_offset=QueueOffset(5),
        commit_log_offset=PhysicalOffset(4711),
        msg_id="U1",
        transaction_id="U1",
        offset_msg_id="O1",
        body=half_message(group),
    )


async def test_a_check_is_answered_with_the_decision_of_the_check_function() -> None:
    seen: list[StoredMessage] = []

    async def check(message: StoredMessage) -> Decision:
        seen.append(message)
        return COMMIT

    async with cluster("T") as servers, producer(servers, check=check) as sender:
        await sender.send("T", b"x")
        notify_peer(servers.broker.connections[0], check_request())
        (end,) = await ends(servers)
    assert (seen[0].topic, seen[0].body, seen[0].unique_key) == ("T", b"the body", "U1")
    assert end.from_transaction_check
    assert (end.msg_id, end.transaction_id, end.commit_or_rollback) == ("U1", "U1", COMMIT)
    assert (end.tran_state_table_offset, end.commit_log_offset) == (5, 4711)


async def test_a_check_function_that_fails_answers_unknown() -> None:
    async with cluster("T") as servers, producer(servers, check=lambda message: 1 // 0) as sender:
        await sender.send("T", b"x")
        notify_peer(servers.broker.connections[0], check_request())
        assert (await ends(servers))[0].commit_or_rollback == UNKNOWN


async def test_a_check_for_another_group_or_with_broken_bytes_is_ignored() -> None:
    async with cluster("T") as servers, producer(servers, check=lambda message: COMMIT) as sender:
        await sender.send("T", b"x")
        connection = servers.broker.connections[0]
        notify_peer(connection, check_request("other"))
        notify_peer(
            connection,
            CheckTransaction(tran_state_table_offset=QueueOffset(0), commit_log_offset=PhysicalOffset(0), body=b"?"),
        )
        notify_peer(connection, check_request())
        assert len(await ends(servers)) == 1
        assert (await sender.send("T", b"x")).is_ok
