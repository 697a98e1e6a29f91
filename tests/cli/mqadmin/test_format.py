"""What mqadmin prints, to the column: as Apache's 4.9.8 printed it for the same broker, because scripts parse it."""

import asyncio
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ariane.cli.mqadmin import main
from ariane.cli.mqadmin.format import permission, track_words, version_name, write_body
from ariane.client.admin.messages import Track, TrackState
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.errors import ClientError
from ariane.testing.broker import BrokerForTests
from tests.client.cluster_fixture import MessageCollector, fresh

CLUSTER = ("-c", "DefaultCluster")
Run = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def bodies_go_with_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def run(shared_broker: BrokerForTests, capsys: pytest.CaptureFixture[str]) -> Run:
    def lines(*words: str) -> list[str]:
        assert main([*words, "-n", shared_broker.namesrv]) == 0, capsys.readouterr().err
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Apache's tool prints and reads local times."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def message(shared_broker: BrokerForTests) -> Received:
    topic = fresh("topic")
    shared_broker.create_topic(topic, queues=1)
    shared_broker.send(topic, b"\xffhi", tags="paid", keys=["order-1"])
    return shared_broker.messages(topic)[0]


HEADINGS = {
    "clusterList": "#Cluster Name     #Broker Name            #BID  #Addr                  #Version                "
    "#InTPS(LOAD)       #OutTPS(LOAD) #PCWait(ms) #Hour #SPACE",
    "clusterList -m": "#Cluster Name     #Broker Name                       #InTotalYest  #OutTotalYest  #InTotalToday "
    "#OutTotalToday",
    "topicList -c": f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}",
    "topicStatus -t TOPIC": "#Broker Name                      #QID  #Min Offset           #Max Offset             "
    "#Last Updated",
    "consumerProgress": f"{'#Group':<64}  #Count  {'#Version':<24} #Type  {'#Model':<14}  #TPS     #Diff Total",
    "statsAll": f"{'#Topic':<64}  {'#Consumer Group':<64} #Accumulation      #InTPS     #OutTPS   #InMsg24Hour  "
    "#OutMsg24Hour",
    "brokerConsumeStats -b ADDRESS": f"{'#Topic':<64}  {'#Group':<64}  {'#Broker Name':<32}  #QID  "
    f"{'#Broker Offset':<20}  {'#Consumer Offset':<20}  {'#Diff':<20}  #LastTime",
    "queryMsgByKey -t TOPIC -k order-1": f"{'#Message ID':<50} #QID {'#Offset':>40}",
    "sendMessage -t TOPIC -p x": "#Broker Name                      #QID  #Send Result            #MsgId",
    "checkMsgSendRT -t TOPIC -s 9 -a 2": "#Broker Name                      #QID  #Send Result            #RT",
}


@pytest.mark.parametrize("command", HEADINGS)
def test_a_table_has_apache_s_headings(
    command: str, run: Run, shared_broker: BrokerForTests, message: Received
) -> None:
    words = command.replace("TOPIC", message.topic).replace("ADDRESS", shared_broker.address).split()
    assert run(*words)[0] == HEADINGS[command]


def test_rows_have_apache_s_columns(run: Run, shared_broker: BrokerForTests, message: Received) -> None:
    topic, address = message.topic, shared_broker.address
    assert re.fullmatch(
        rf"DefaultCluster    broker-a                0     {address:<22} Ariane-\S+ +\d+\.\d\d\(0,0ms\)"
        r" +\d+\.\d\d\(0,0ms\) +0  0\.\d\d 0\.\d{4}",
        run("clusterList")[1],
    )
    assert f"{'DefaultCluster':<20}  {topic:<64}  {'':<64}" in run("topicList", "-c")
    assert run("queryMsgByKey", "-t", topic, "-k", "order-1")[1] == f"{message.message_id:<50}    0 {0:>40}"
    traffic = rf"{topic:<64}  {'':<64}            0 [ .\d]{{11}} {{12}}[ \d]{{15}}    NO_CONSUMER"
    assert any(re.fullmatch(traffic, line) for line in run("statsAll"))


def test_times_are_local(run: Run, in_new_york: None, message: Received) -> None:
    stored = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(message.store_timestamp_ms // 1000))
    shown = f"{stored},{message.store_timestamp_ms % 1000:03d}"
    row = run("topicStatus", "-t", message.topic)[1]
    assert row == f"broker-a                          0     {0:<20}  {1:<20}    {shown}"
    assert f"Store Timestamp:     {shown}" in run("queryMsgById", "-i", message.offset_message_id)


def test_a_message_is_shown_line_by_line(run: Run, message: Received) -> None:
    found = run("queryMsgById", "-i", message.offset_message_id)
    names = [line.partition(":")[0] for line in found]
    assert [line[:21] for line in found[:7]] == [
        "OffsetID:            ",
        "Topic:               ",
        "Tags:                ",
        "Keys:                ",
        "Queue ID:            ",
        "Queue Offset:        ",
        "CommitLog Offset:    ",
    ]
    assert names[7:15] == [
        *("Reconsume Times", "Born Timestamp", "Store Timestamp", "Born Host", "Store Host", "System Flag"),
        *("Properties", "Message Body Path"),
    ]
    assert "Tags:                [paid]" in found
    assert found[-1] == "WARN: No Consumer"
    assert Path(found[14].split()[-1]).read_bytes() == b"\xffhi"
    by_unique_key = run("queryMsgByUniqueKey", "-t", message.topic, "-i", message.message_id)
    assert by_unique_key == found[1:]


def test_an_id_that_is_a_path_stays_in_the_directory_of_bodies(message: Received) -> None:
    outside = msgspec.structs.replace(message, properties={"UNIQ_KEY": "../../evil"})
    assert outside.message_id == "../../evil"
    assert write_body(outside).name == message.offset_message_id


def test_a_body_is_not_written_through_a_link(message: Received, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "rocketmq" / "msgbodys" / message.message_id
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    with pytest.raises(ClientError, match="set TMPDIR"):
        write_body(message)
    assert not target.exists()


def test_messages_are_printed_like_java_does(run: Run, message: Received) -> None:
    head, line, end = run("printMsg", "-t", message.topic)
    assert head == f"minOffset=0, maxOffset=1, MessageQueue [topic={message.topic}, brokerName=broker-a, queueId=0]"
    assert line.startswith(f"MSGID: {message.message_id} MessageExt [brokerName=broker-a, queueId=0, storeSize=")
    assert f"bornHost=/{message.born_host}, storeTimestamp={message.store_timestamp_ms}, storeHost=/" in line
    assert f"toString()=Message{{topic='{message.topic}', flag=0, properties={{" in line
    assert line.endswith("}, body=[-1, 104, 105], transactionId='null'}] BODY: \N{REPLACEMENT CHARACTER}hi")
    assert end == "-" * 56
    consumed = run("consumeMessage", "-t", message.topic)
    assert consumed[0] == "Consume ok"
    assert consumed[2].endswith("queueId=0] print msg finished. status=NO_NEW_MSG, offset=1")
    assert run("printMsg", "-t", message.topic, "-s", "other")[1] == (
        f"MessageQueue [topic={message.topic}, brokerName=broker-a, queueId=0] no matched msg. "
        "status=NO_MATCHED_MSG, offset=1"
    )


def test_entries_of_a_consume_queue_are_printed_like_java_does(run: Run, message: Received) -> None:
    assert run("queryCq", "-t", message.topic, "-q", "0", "-i", "0") == [
        "Queue data: ",
        "max: 1, min: 0",
        "=" * 38,
        "idx: 0",
        f"ConsumeQueueData{{physicOffset={message.physical_offset}, physicSize={message.stored_size}, "
        "tagsCode=3433164, extendDataJson='null', bitMap='null', eval=false, msg='null'}",
        "=" * 38,
    ]


def test_a_route_is_json_without_blanks_after_colons(run: Run, message: Received) -> None:
    lines = run("topicRoute", "-t", message.topic)
    assert lines[:2] == ["{", '\t"brokerDatas":[']
    assert '\t\t\t"perm":6,' in lines
    assert run("allocateMQ", "-t", message.topic, "-i", "10.0.0.1") == [
        f'{{"result":{{"10.0.0.1":[{{"brokerName":"broker-a","queueId":0,"topic":"{message.topic}"}}]}}}}'
    ]


def test_changes_of_a_topic_are_reported_in_apache_s_words(run: Run, shared_broker: BrokerForTests) -> None:
    topic, address = fresh("topic"), shared_broker.address
    config = f"TopicConfig [topicName={topic}, readQueueNums=8, writeQueueNums=8, perm=RW-, "
    config += "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=true]"
    order = "orderConf. isOrder=true, orderConf=[broker-a:8]"
    ordered = ("-t", topic, "-o", "true")
    assert run("updateTopic", *CLUSTER, *ordered) == [
        f"create topic to {address} success.",
        f"set cluster {order}{config}",
    ]
    assert run("updateTopic", "-b", address, *ordered) == [
        f"set broker {order}create topic to {address} success.",
        config,
    ]
    assert run("updateTopicPerm", *CLUSTER, "-t", topic, "-p", "4") == [
        f"update topic perm from 6 to 4 in {address} success."
    ]
    assert run("updateTopicPerm", "-b", address, "-t", topic, "-p", "4") == ["new perm equals to the old one!"]
    assert run("updateTopicPerm", "-b", address, "-t", topic, "-p", "6")[1] == f"{config}."
    assert run("deleteTopic", *CLUSTER, "-t", topic) == [
        f"delete topic [{topic}] from cluster [DefaultCluster] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]


def test_changes_of_a_group_are_reported_in_apache_s_words(
    run: Run, shared_broker: BrokerForTests, message: Received
) -> None:
    group, address = fresh("group"), shared_broker.address
    assert run("updateSubGroup", *CLUSTER, "-g", group) == [
        f"create subscription group to {address} success.",
        f"SubscriptionGroupConfig [groupName={group}, consumeEnable=true, consumeFromMinEnable=false, "
        "consumeBroadcastEnable=false, retryQueueNums=1, retryMaxTimes=16, brokerId=0, "
        "whichBrokerWhenConsumeSlowly=1, notifyConsumerIdsChangedEnable=true]",
    ]
    assert run("resetOffsetByTime", "-g", group, "-t", message.topic, "-s", "now") == [
        f"rollback consumer offset by specified group[{group}], topic[{message.topic}], force[true], "
        "timestamp(string)[now], timestamp(long)[-1]",
        f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}",
        f"{'broker-a':<40}  {0:<40}  {1:<40}",
    ]
    progress = run("consumerProgress", "-g", group)
    assert progress[1].startswith(f"{message.topic:<64}  {'broker-a':<32}  0     {1:<20}  {1:<20}  {0:<20}  2")
    assert progress[2:] == ["", "Consume TPS: 0.00", "Diff Total: 0"]
    assert f"{group:<64}  0       {'OFFLINE':<24}        {'':<14}  0        0" in run("consumerProgress")
    assert run("deleteSubGroup", *CLUSTER, "-g", group) == [
        f"delete subscription group [{group}] from broker [{address}] in cluster [DefaultCluster] success.",
        f"delete topic [%RETRY%{group}] from cluster [DefaultCluster] success.",
        f"delete topic [%RETRY%{group}] from NameServer success.",
        f"delete topic [%DLQ%{group}] from cluster [DefaultCluster] success.",
        f"delete topic [%DLQ%{group}] from NameServer success.",
    ]


def test_settings_have_an_equals_sign_at_column_50(run: Run, shared_broker: BrokerForTests) -> None:
    address = shared_broker.address
    assert run("getBrokerConfig", "-b", address)[0] == f"============{address}============"
    config = run("getBrokerConfig", *CLUSTER)
    assert config[0] == f"============Master: {address}============"
    assert f"{'brokerName':<50}=  broker-a" in config
    assert f"{'brokerActive':<32}: true" in run("brokerStatus", "-b", address)
    assert f"{address:<24} {'brokerActive':<32}: true" in run("brokerStatus", *CLUSTER)
    namesrv = shared_broker.namesrv
    assert run("getNamesrvConfig")[0] == f"============{namesrv}============"


async def test_members_of_a_group_are_reported_on_the_screen_and_in_files(
    shared_broker: BrokerForTests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def lines(*words: str) -> list[str]:
        assert await asyncio.to_thread(main, [*words, "-n", shared_broker.namesrv]) == 0
        return capsys.readouterr().out.splitlines()

    monkeypatch.chdir(tmp_path)
    topic, collector = fresh("topic"), MessageCollector()
    await shared_broker.aio.create_topic(topic, queues=1)
    await shared_broker.aio.send(topic, b"x")
    consumer = PushConsumer(shared_broker.namesrv, group=fresh("group"), start="earliest", handler=collector.put)
    consumer.subscribe(topic)
    async with consumer:
        await collector.until_count(1)
        client_id = consumer.client_id
        head, row, *agreement = await lines("consumerStatus", "-g", consumer.group)
        alone = await lines("consumerStatus", "-g", consumer.group, "-i", client_id)
        connected = await lines("consumerConnection", "-g", consumer.group)
    assert head == f"{'#Index':<10} {'#ClientId':<40} {'#Version':<20} #ConsumerRunningInfoFile"
    place = row.split()[-1]
    assert row == f"{1:<10} {client_id:<40} {'V4_7_1':<20} {place}"
    assert agreement == ["", "", "Same subscription in the same group of consumer", "", "Rebalance OK"]
    assert alone[0] == (tmp_path / place).read_text().splitlines()[0] == "#Consumer Properties#"
    headings = [line for line in alone if line.endswith("#")][1:]
    assert headings == [f"#Consumer {name}#" for name in ("Subscription", "Offset", "MQ Detail", "RT&TPS")]
    assert f"001 Topic: {f'%RETRY%{consumer.group}':<40} ClassFilter: false    SubExpression: *" in alone
    assert any(line.startswith(f"{topic:<32}  {'broker-a':<32}  0     ") for line in alone)
    assert connected[0] == f"{'#ClientId':<36} {'#ClientAddr':<22} {'#Language':<10} #Version"
    assert re.fullmatch(rf"{client_id:<36} 127\.0\.0\.1:\d+ +PYTHON     V4_7_1", connected[1])


def test_versions_and_permissions_have_apache_s_names() -> None:
    names = {355: "V4_7_1", 399: "V4_9_3", 401: "V4_9_4", 413: "V5_0_0", 232: "V4_1_0_SNAPSHOT", 121: "121"}
    assert {number: version_name(number) for number in names} == names
    assert [permission(perm) for perm in (2, 4, 6, 7)] == ["-W-", "R--", "RW-", "RWX"]


def test_the_state_of_a_message_in_a_group_has_apache_s_names() -> None:
    words = {
        (state, is_online): track_words(Track(group="billing", state=state, is_online=is_online))
        for state in TrackState
        for is_online in (True, False)
    }
    assert words[TrackState.CONSUMED, False] == (
        "MessageTrack [consumerGroup=billing, trackType=CONSUMED, exceptionDesc=null]"
    )
    named = {track.partition("trackType=")[2].partition(",")[0] for track in words.values()}
    assert named == {"CONSUMED", "CONSUMED_BUT_FILTERED", "NOT_CONSUME_YET", "NOT_ONLINE", "UNKNOWN"}
