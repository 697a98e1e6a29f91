"""Sends over real sockets: what is stored, what is answered, and every reason to refuse."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ariane.errors import RequestFailed
from ariane.model.message import StoredMessage
from ariane.model.system_topics import SCHEDULE, TIMER, TRANS_HALF
from ariane.model.topic import TopicConfig, TopicFilterType
from ariane.store.settings import FlushDiskType
from ariane.testing import FakeClock
from ariane.wire.codes import HeaderFlag, ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.fields import to_ext
from ariane.wire.frame import Command, encode_frame
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.record.read import decode, decode_all
from ariane.wire.requests.send import SendMessage
from tests.broker.blocked_sync import SyncGate
from tests.broker.in_process_broker import TOPIC, InProcessBroker, a_send, in_process_broker
from tests.transport.peers import connected, until
from tests.wire.golden_frames import raw_frames, whole_frames


def stored(broker: InProcessBroker, topic: str = TOPIC, queue_id: int = 0) -> list[StoredMessage]:
    return decode_all(b"".join(broker.store.reader.read(topic, queue_id, 0, 32).slices))


async def refusal(broker: InProcessBroker, *, code: ResponseCode, **changes: Any) -> str:
    with pytest.raises(RequestFailed) as caught:
        await broker.call(a_send(**changes))
    assert caught.value.code == code
    return caught.value.remark


# --- stored and answered --------------------------------------------------------------------------------------------


async def test_a_message_is_stored_as_it_was_sent_with_the_cluster_added(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        properties = {"KEYS": "k1 k2", "TAGS": "red", "UNIQ_KEY": "0A" * 16, "colour": "grün"}
        response = await broker.call(a_send(b"body", properties, queue_id=2, flag=9, reconsume_times=1))
        (message,) = stored(broker, queue_id=2)
        assert message.body == b"body"
        assert message.properties == {**properties, "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion"}
        assert (message.flag, message.reconsume_times, message.born_timestamp_ms) == (9, 1, 1_700_000_000_000)
        assert str(message.born_host.ip) == "127.0.0.1"
        assert (response.code, response.queue_id, response.queue_offset) == (ResponseCode.SUCCESS, 2, 0)
        assert response.transaction_id == "0A" * 16
        assert (response.msg_region, response.trace_on) == ("DefaultRegion", True)


async def test_the_message_id_leads_to_the_message_at_the_advertised_address(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send(b"first"))
        response = await broker.call(a_send(b"second"))
        where = decode_offset_message_id(response.msg_id)
        assert str(where.store_host) == "127.0.0.1:10911"
        record = broker.store.lookup.record_at(where.physical_offset)
        assert record is not None
        assert decode(record).body == b"second"


async def test_the_old_spelling_of_the_fields_means_the_same(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        short = a_send(b"old", {"TAGS": "a"})
        names = ("producer_group", "topic", "default_topic", "default_topic_queue_nums", "queue_id", "sys_flag")
        more = ("born_timestamp", "flag", "properties", "body")
        await broker.call(SendMessage(**{name: getattr(short, name) for name in (*names, *more)}))
        assert stored(broker)[0].body == b"old"


async def test_an_answer_says_every_field_as_text(tmp_path: Path) -> None:
    """C++ and Go lose fields that are JSON numbers."""
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        await client.send(encode_frame(request_command(a_send(), opaque=7)))
        response = await client.read()
        assert response.opaque == 7
        assert set(response.ext) == {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"}
        assert (response.ext["queueId"], response.ext["TRACE_ON"]) == ("0", "true")


async def test_a_oneway_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        await client.send(encode_frame(request_command(a_send(b"quiet"), opaque=1, oneway=True)))
        await client.send(encode_frame(request_command(a_send(b"loud"), opaque=2)))
        assert (await client.read()).opaque == 2
        assert [message.body for message in stored(broker)] == [b"quiet", b"loud"]


async def test_a_refused_oneway_send_is_not_answered_either(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        await client.send(encode_frame(request_command(a_send(b"", topic="gone"), opaque=1, oneway=True)))
        await client.send(encode_frame(request_command(a_send(), opaque=2)))
        assert (await client.read()).opaque == 2


async def test_a_pipelined_chunk_is_answered_in_order(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        frames = [encode_frame(request_command(a_send(b"%d" % n), opaque=n)) for n in range(1, 51)]
        await client.send(b"".join(frames))
        responses = [await client.read() for _ in frames]
        assert [response.opaque for response in responses] == list(range(1, 51))
        assert [response.ext["queueOffset"] for response in responses] == [str(n) for n in range(50)]


async def test_without_a_queue_a_write_queue_is_chosen(tmp_path: Path) -> None:
    topic = TopicConfig(topic_name=TOPIC, read_queue_nums=8, write_queue_nums=2)
    async with in_process_broker(tmp_path, topics=[topic]) as broker:
        chosen = {(await broker.call(a_send(queue_id=-1))).queue_id for _ in range(60)}
        assert chosen == {0, 1}


async def test_a_queue_that_only_readers_see_still_takes_messages(tmp_path: Path) -> None:
    topic = TopicConfig(topic_name=TOPIC, read_queue_nums=8, write_queue_nums=2)
    async with in_process_broker(tmp_path, topics=[topic]) as broker:
        assert (await broker.call(a_send(queue_id=7))).queue_id == 7


async def test_a_multi_tag_topic_marks_its_messages(tmp_path: Path) -> None:
    topic = TopicConfig(topic_name=TOPIC, topic_filter_type=TopicFilterType.MULTI_TAG)
    async with in_process_broker(tmp_path, topics=[topic]) as broker:
        await broker.call(a_send())
        assert stored(broker)[0].sys_flag & 0x2


# --- checks ---------------------------------------------------------------------------------------------------------


async def test_sends_before_the_accept_time_are_refused_with_both_times(tmp_path: Path) -> None:
    clock = FakeClock(1_000)
    async with in_process_broker(tmp_path, clock, accept_sends_from_ms=5_000) as broker:
        remark = await refusal(broker, code=ResponseCode.SYSTEM_ERROR)
        assert "startAcceptSendRequestTimeStamp = 5000" in remark
        await clock.advance(4)
        await broker.call(a_send())


async def test_a_read_only_broker_stores_what_producers_with_an_old_route_send(tmp_path: Path) -> None:
    """As Apache 4.9 does, which refuses sends to ordered topics only."""
    async with in_process_broker(tmp_path, permission=4) as broker:
        await broker.call(a_send(b"a"))
        broker.topics.put(TopicConfig(topic_name=TOPIC, order=True))
        assert "brokerPermission = 4" in await refusal(broker, code=ResponseCode.NO_PERMISSION)
        assert [message.body for message in stored(broker)] == [b"a"]


async def test_a_read_only_broker_can_refuse(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, permission=4, refuse_unpermitted_sends=True) as broker:
        assert "brokerPermission = 4" in await refusal(broker, code=ResponseCode.NO_PERMISSION)


@pytest.mark.parametrize("topic", ["", "a b", "../x", "a" * 128, "tópico", "a\ud800"])
async def test_a_bad_topic_name_is_refused(tmp_path: Path, topic: str) -> None:
    async with in_process_broker(tmp_path, auto_create_topics=True) as broker, connected(broker.server) as client:
        ext = {**to_ext(a_send()), "b": topic}
        text = ",".join(f'"{name}":{_json(value)}' for name, value in ext.items())
        header = f'{{"code":310,"opaque":3,"flag":0,"version":355,"language":"JAVA","extFields":{{{text}}}}}'.encode()
        body = b"x"
        frame = (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body
        await client.send(frame)
        response = await client.read()
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "topic name" in (response.remark or "")


def _json(text: str) -> str:
    return '"' + "".join(char if char.isascii() else f"\\u{ord(char):04x}" for char in text) + '"'


@pytest.mark.parametrize("topic", [SCHEDULE, TRANS_HALF, TIMER, "rmq_sys_anything", "OFFSET_MOVED_EVENT"])
async def test_the_brokers_own_topics_are_closed_to_clients(tmp_path: Path, topic: str) -> None:
    async with in_process_broker(tmp_path, auto_create_topics=True) as broker:
        assert topic in await refusal(broker, code=ResponseCode.NO_PERMISSION, topic=topic)


async def test_an_unknown_topic_is_refused_with_the_fix(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert "autoCreateTopicEnable" in await refusal(broker, code=ResponseCode.TOPIC_NOT_EXIST, topic="nowhere")


async def test_an_unknown_topic_is_made_when_that_is_allowed(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, auto_create_topics=True) as broker:
        await broker.call(a_send(topic="fresh"))
        config = broker.topics.get("fresh")
        assert config is not None
        assert config.write_queue_nums == 4


async def test_a_topic_without_write_permission_stores_what_producers_with_an_old_route_send(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        await broker.call(a_send(b"a"))
        broker.topics.put(TopicConfig(topic_name=TOPIC, perm=4))
        for opaque, request in enumerate([a_send(b"b"), a_send(b"c")]):  # the general path, then the fast path
            await client.send(encode_frame(request_command(request, opaque=opaque)))
            assert (await client.read()).code == ResponseCode.SUCCESS
        assert [message.body for message in stored(broker)] == [b"a", b"b", b"c"]


async def test_a_topic_without_write_permission_can_refuse_at_once_and_takes_again_when_it_may(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, refuse_unpermitted_sends=True) as broker:
        await broker.call(a_send())
        broker.topics.put(TopicConfig(topic_name=TOPIC, perm=4))
        assert "perm = 4" in await refusal(broker, code=ResponseCode.NO_PERMISSION)
        broker.topics.put(TopicConfig(topic_name=TOPIC, perm=6))
        await broker.call(a_send())


async def test_a_deleted_topic_is_gone_for_senders(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send())
        broker.topics.delete(TOPIC)
        await refusal(broker, code=ResponseCode.TOPIC_NOT_EXIST)


async def test_a_queue_that_is_not_there_is_refused_with_the_number_of_queues(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert "4 write" in await refusal(broker, code=ResponseCode.SYSTEM_ERROR, queue_id=4)


async def test_an_empty_body_is_refused(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert "empty" in await refusal(broker, code=ResponseCode.MESSAGE_ILLEGAL, body=b"")


async def test_a_message_that_is_too_large_is_refused_with_size_limit_and_key(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, store={"max_message_bytes": 2000}) as broker:
        await broker.call(a_send(bytes(2000), {"KEYS": "k" * 500}))
        remark = await refusal(broker, code=ResponseCode.MESSAGE_ILLEGAL, body=bytes(2001))
        assert "at most 2000" in remark
        assert "maxMessageSize" in remark


async def test_properties_that_are_too_long_are_refused(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        remark = await refusal(broker, code=ResponseCode.MESSAGE_ILLEGAL, properties=f"a\x01{'x' * 32_760}\x02")
        assert "32767" in remark


@pytest.mark.parametrize("text", ["a\x01b\x01c\x02", "a\x02b\x02"])
async def test_separators_inside_properties_are_refused(tmp_path: Path, text: str) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert "separate" in await refusal(broker, code=ResponseCode.MESSAGE_ILLEGAL, properties=text)
        assert stored(broker) == []


async def test_a_clients_record_checksum_is_not_stored(tmp_path: Path) -> None:
    """A record that ends with a foreign checksum would count as damaged at the next start."""
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send(properties="a\x01b\x02__CRC32#\x010123456789\x02"))
        assert stored(broker)[0].properties == {"a": "b", "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion"}


async def test_the_clients_own_cluster_property_gives_way(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send(properties={"CLUSTER": "elsewhere", "a": "b"}))
        assert stored(broker)[0].properties == {"CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion", "a": "b"}


# --- delay, transactions, retries -----------------------------------------------------------------------------------


async def test_a_delayed_message_waits_in_the_schedule_topic(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        response = await broker.call(a_send(properties={"DELAY": "3"}, queue_id=1))
        assert (response.queue_id, response.queue_offset) == (1, 0)
        (waiting,) = stored(broker, SCHEDULE, 2)
        assert waiting.properties["REAL_TOPIC"] == TOPIC
        assert waiting.properties["REAL_QID"] == "1"
        assert stored(broker, TOPIC, 1) == []


async def test_a_delivery_time_beyond_the_limit_is_illegal(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, timer_delay_max_s=60) as broker:
        await broker.call(a_send(properties={"TIMER_DELAY_SEC": "59"}))
        assert len(stored(broker, TIMER)) == 1
        changes = {"properties": {"TIMER_DELAY_SEC": "61"}}
        assert "timerMaxDelaySec = 60" in await refusal(broker, code=ResponseCode.MESSAGE_ILLEGAL, **changes)


async def test_a_half_message_is_not_seen_in_its_topic(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        properties = {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": "u1", "DELAY": "3"}
        response = await broker.call(a_send(properties=properties, sys_flag=4, queue_id=3))
        (half,) = stored(broker, TRANS_HALF)
        assert stored(broker, TOPIC, 3) == []
        assert (half.properties["REAL_TOPIC"], half.properties["REAL_QID"]) == (TOPIC, "3")
        assert half.sys_flag & 0xC == 0
        assert "DELAY" not in half.properties  # a commit delivers at once, as Java's producer has it
        assert decode_offset_message_id(response.msg_id).physical_offset == half.physical_offset
        assert (response.queue_offset, response.transaction_id) == (half.queue_offset, "u1")


async def test_transactions_are_refused_where_they_are_switched_off(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, reject_transactions=True) as broker:
        changes = {"properties": {"TRAN_MSG": "true"}, "sys_flag": 4}
        assert "rejectTransactionMessage" in await refusal(broker, code=ResponseCode.NO_PERMISSION, **changes)
        assert stored(broker, TRANS_HALF) == []


@pytest.mark.parametrize("sys_flag", [0x4, 0x8, 0xC])
async def test_transaction_bits_without_the_property_are_refused(tmp_path: Path, sys_flag: int) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert "TRAN_MSG" in await refusal(broker, code=ResponseCode.MESSAGE_ILLEGAL, sys_flag=sys_flag)


async def test_a_retried_message_with_an_old_transaction_mark_is_no_transaction(tmp_path: Path) -> None:
    """Clients before 4.6.1 leave TRAN_MSG on what they send to their retry topic."""
    async with in_process_broker(tmp_path) as broker:
        properties = {"TRAN_MSG": "true", "DELAY": "4"}
        request = a_send(topic="%RETRY%g", properties=properties, sys_flag=4, reconsume_times=1, max_reconsume_times=16)
        await broker.call(request)
        (waiting,) = stored(broker, SCHEDULE, 3)
        assert waiting.sys_flag & 0xC == 0
        assert waiting.properties["REAL_TOPIC"] == "%RETRY%g"


async def test_a_client_may_send_to_its_retry_topic_until_its_attempts_are_spent(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        common: dict[str, Any] = {"topic": "%RETRY%g", "properties": {"DELAY": "3"}, "max_reconsume_times": 2}
        await broker.call(a_send(b"again", reconsume_times=1, **common))
        await broker.call(a_send(b"dead", reconsume_times=2, **common))
        assert [message.body for message in stored(broker, SCHEDULE, 2)] == [b"again"]
        (dead,) = stored(broker, "%DLQ%g")
        assert dead.body == b"dead"
        assert "DELAY" not in dead.properties


async def test_a_retry_of_an_unknown_group_is_refused_when_groups_are_not_made(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, auto_create_groups=False) as broker:
        await refusal(broker, code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, topic="%RETRY%g", reconsume_times=0)


# --- durability and flow control ------------------------------------------------------------------------------------


async def test_with_sync_flush_the_answer_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = SyncGate(monkeypatch)
    async with in_process_broker(tmp_path, flush=FlushDiskType.SYNC) as broker:
        with gate.held():
            sending = asyncio.ensure_future(broker.call(a_send()))
            await until(lambda: broker.writer.waiting == 1)
            assert not sending.done()
        assert (await sending).code == ResponseCode.SUCCESS


async def test_a_sync_that_takes_too_long_is_reported_with_the_place_of_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = SyncGate(monkeypatch)
    async with in_process_broker(tmp_path, flush=FlushDiskType.SYNC, store={"sync_flush_timeout_ms": 1}) as broker:
        with gate.held():
            response = await broker.call(a_send())
        assert response.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert response.msg_id


async def test_wait_false_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = SyncGate(monkeypatch)
    async with in_process_broker(tmp_path, flush=FlushDiskType.SYNC) as broker:
        with gate.held():
            assert (await broker.call(a_send(properties={"WAIT": "false"}))).code == ResponseCode.SUCCESS


async def test_after_a_failed_sync_sends_fail_and_never_look_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = SyncGate(monkeypatch)
    async with in_process_broker(tmp_path, flush=FlushDiskType.SYNC) as broker:
        gate.fail()
        await refusal(broker, code=ResponseCode.SERVICE_NOT_AVAILABLE)
        assert "read-only" in await refusal(broker, code=ResponseCode.SERVICE_NOT_AVAILABLE)


async def test_a_full_disk_is_reported_with_its_ratios(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, store={"refuse_writes_ratio": 0.35, "clean_forcibly": False}) as broker:
        disk = broker.store.components.disk
        disk.used_ratio = lambda path: 0.97  # type: ignore[method-assign]  # the disk is the machine's, not ours
        broker.store.clean()
        remark = await refusal(broker, code=ResponseCode.SERVICE_NOT_AVAILABLE)
        assert "CL: 0.97 CQ: 0.97 INDEX: 0.97" in remark
        assert "diskSpaceWarningLevelRatio" in remark
        disk.used_ratio = lambda path: 0.1  # type: ignore[method-assign]
        broker.store.clean()
        await broker.call(a_send())


async def test_a_slow_append_makes_the_next_sends_busy(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send())
        broker.store.append_s = 1.5
        remark = await refusal(broker, code=ResponseCode.SYSTEM_BUSY)
        assert remark.startswith("[REJECTREQUEST]")
        assert "1500 ms" in remark
        assert "osPageCacheBusyTimeOutMills = 1000" in remark


async def test_too_many_who_wait_for_the_disk_are_an_overload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = SyncGate(monkeypatch)
    async with in_process_broker(
        tmp_path, flush=FlushDiskType.SYNC, waiting_max=100, send_wait_max_ms=600_000
    ) as broker:
        with gate.held():
            sending = [asyncio.ensure_future(broker.call(a_send())) for _ in range(100)]
            await until(lambda: broker.writer.waiting == 100)
            remark = await refusal(broker, code=ResponseCode.SYSTEM_BUSY)
            assert remark.startswith("[OVERLOAD]")
            assert "sendThreadPoolQueueCapacity = 100" in remark
        assert {response.code for response in await asyncio.gather(*sending)} == {ResponseCode.SUCCESS}


async def test_a_queue_that_waits_too_long_for_the_disk_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, clock = SyncGate(monkeypatch), FakeClock()
    async with in_process_broker(tmp_path, clock, flush=FlushDiskType.SYNC, send_wait_max_ms=200) as broker:
        with gate.held():
            sending = [asyncio.ensure_future(broker.call(a_send())) for _ in range(100)]
            await until(lambda: broker.writer.waiting == 100)
            await clock.advance(0.25)
            remark = await refusal(broker, code=ResponseCode.SYSTEM_BUSY)
            assert remark.startswith("[TIMEOUT_CLEAN_QUEUE]")
            assert "250 ms" in remark
            assert "waitTimeMillsInSendQueue = 200" in remark
        await asyncio.gather(*sending)


# --- golden ---------------------------------------------------------------------------------------------------------


async def test_sends_of_real_clients_are_stored(tmp_path: Path) -> None:
    """Java, Go and Node against Apache's servers: every send among the golden frames is taken here, too."""
    async with in_process_broker(tmp_path, auto_create_topics=True) as broker, connected(broker.server) as client:
        sends = [
            (raw, golden.command)
            for raw, golden in zip(raw_frames(), whole_frames(), strict=True)
            if not golden.command.is_response and golden.command.code in (10, 310, 320)
        ]
        assert sends
        for raw, command in sends:
            await client.send(raw)
            if not command.flag & HeaderFlag.ONEWAY:
                response: Command = await client.read()
                assert (response.code, response.opaque) == (ResponseCode.SUCCESS, command.opaque), response.remark
                assert {"msgId", "queueId", "queueOffset"} <= set(response.ext)
