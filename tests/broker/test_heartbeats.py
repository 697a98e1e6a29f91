"""Heartbeats and notifications over real sockets."""

from dataclasses import replace

import pytest

from ariane.broker.groups.members import ClientLimits
from ariane.model.group import GroupConfig, Subscription
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.frame import Command, encode_frame
from ariane.wire.requests.clients import (
    CheckClientConfig,
    ClientCheck,
    GetConsumerIds,
    Heartbeat,
    HeartbeatData,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)
from tests.broker.consumer_group_fixtures import (
    SETTINGS,
    RawGroupClient,
    connected_client,
    consumer,
    group_broker,
    heartbeat,
    running,
    subscription,
)
from tests.transport.peers import until

ORDERS = subscription("orders")


async def test_the_list_of_members_is_an_error_without_members_and_has_no_duplicates() -> None:
    async with running(group_broker()) as server, connected_client(server) as first, connected_client(server) as double:
        assert await first.error_response(GetConsumerIds("g")) == (
            ResponseCode.SYSTEM_ERROR,
            "no consumer for this group, g",
        )
        await first.call(heartbeat("client-1", consumer("g", ORDERS)))
        await double.call(heartbeat("client-1", consumer("g", ORDERS)))
        assert (await first.call(GetConsumerIds("g"))).body.consumer_id_list == ["client-1"]


async def test_every_member_is_notified_of_new_members_new_topics_and_leaving_members() -> None:
    async with running(group_broker()) as server, connected_client(server) as old:
        await old.call(heartbeat("old", consumer("g", ORDERS)))
        await _hears_of_a_change(old)
        async with connected_client(server) as new:
            await new.call(heartbeat("new", consumer("g", ORDERS)))
            await _hears_of_a_change(old)
            await _hears_of_a_change(new)
            await new.call(heartbeat("new", consumer("g", ORDERS, subscription("bills"))))
            await _hears_of_a_change(old)
            await new.call(UnregisterClient(client_id="new", producer_group="", consumer_group="g"))
            await _hears_of_a_change(old)
            assert (await new.call(GetConsumerIds("g"))).body.consumer_id_list == ["old"]


async def test_a_closed_connection_leaves_its_groups_at_once() -> None:
    broker = group_broker()
    async with running(broker) as server, connected_client(server) as stays:
        await stays.call(heartbeat("stays", consumer("g", ORDERS)))
        await _hears_of_a_change(stays)
        async with connected_client(server) as goes:
            await goes.call(heartbeat("goes", consumer("g", ORDERS), producers=("p",)))
            await _hears_of_a_change(stays)
        await _hears_of_a_change(stays)
        assert (await stays.call(GetConsumerIds("g"))).body.consumer_id_list == ["stays"]
        assert broker.clients.producers("p") == []
        assert broker.clients.find("goes") is None


async def test_an_unchanged_heartbeat_notifies_no_member() -> None:
    async with running(group_broker()) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("g", ORDERS)))
        await _hears_of_a_change(client)
        await client.call(heartbeat("c", consumer("g", subscription("orders", version=2))))
        await client.call(GetConsumerIds("g"))
        assert client.pushed == []


@pytest.mark.parametrize("switched_off", ["broker", "group"])
async def test_either_setting_disables_notifications(switched_off: str) -> None:
    broker = group_broker(replace(SETTINGS, notify_ids_changed=switched_off != "broker"))
    broker.groups.put(GroupConfig(group_name="g", notify_consumer_ids_changed_enable=switched_off != "group"))
    async with running(broker) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("g", ORDERS)))
        await client.call(GetConsumerIds("g"))
        assert client.pushed == []


async def test_a_consumer_gets_its_group_and_its_retry_topic() -> None:
    broker = group_broker()
    broker.groups.put(GroupConfig(group_name="wide", retry_queue_nums=3))
    broker.groups.put(GroupConfig(group_name="none", retry_queue_nums=0))
    async with running(broker) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("new", ORDERS), consumer("wide", ORDERS), consumer("none", ORDERS)))
    assert broker.groups.get("new") == GroupConfig(group_name="new")
    queues = {name: config.read_queue_nums for name, config in broker.topics.all().items() if "%RETRY%" in name}
    assert queues == {"%RETRY%new": 1, "%RETRY%wide": 3}


async def test_without_auto_creation_an_unknown_group_is_a_member_but_gets_no_retry_topic() -> None:
    """Its pull is refused in clear words; were it not listed, its client would wait in silence."""
    broker = group_broker(replace(SETTINGS, auto_create_groups=False))
    async with running(broker) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("g", ORDERS)))
        assert (await client.call(GetConsumerIds("g"))).body.consumer_id_list == ["c"]
    assert broker.groups.get("g") is None
    assert broker.topics.get("%RETRY%g") is None


async def test_heartbeats_of_other_languages_are_understood() -> None:
    broker = group_broker()
    cpp = (
        b'{"clientID":"77-10.0.0.9@DEFAULT","consumerDataSet":[{"groupName":"g","consumeType":1,"messageModel":1,'
        b'"consumeFromWhere":4,"subscriptionDataSet":[{"topic":"orders","subString":"a||b","subVersion":"1700000000000",'
        b'"tagsSet":["a","b"],"codeSet":["97","98"]}]}]}\n'
    )
    lua = b'{"clientID":"10.0.0.9@lua","producerDataSet":{},"consumerDataSet":[{"groupName":"l","consumeType":"'
    lua += b'CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    lua += b'"subscriptionDataSet":[{"topic":"orders","subString":"*","codeSet":{},"tagsSet":{}}]}]}'
    async with running(broker) as server, connected_client(server) as client:
        for opaque, (body, language) in enumerate([(cpp, "CPP"), (lua, "other")]):
            command = Command(code=RequestCode.HEART_BEAT, opaque=opaque, body=body, language=language, version=333)
            await client.raw.send(encode_frame(command))
            while (response := await client.raw.read()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                pass
            assert (response.code, response.opaque) == (0, opaque)
        groups = broker.clients.groups()
        assert groups["g"].subscriptions["orders"].sub_version == 1_700_000_000_000
        assert groups["g"].message_model == "CLUSTERING"
        assert [member.language.name for member in groups["l"].members.values()] == ["OTHER"]


async def test_limits_are_checked_before_any_state_is_stored() -> None:
    broker = group_broker(limits=ClientLimits(members_max=1, groups_max=2, topics_max=1))
    async with running(broker) as server, connected_client(server) as first, connected_client(server) as second:
        await first.call(heartbeat("a", consumer("g", ORDERS), producers=("p",)))
        for request, reason in [
            (heartbeat("b", consumer("g", ORDERS)), "has 1 consumers, at most 1"),
            (heartbeat("b", producers=("p",)), "has 1 producers, at most 1"),
            (heartbeat("b", producers=("x", "y", "z")), "at most 2 groups"),
            (heartbeat("b", consumer("h", ORDERS, subscription("bills"))), "2 topics, at most 1"),
            (heartbeat("b", consumer("h@x", ORDERS)), "may hold only letters"),
            (heartbeat("b", consumer("h" * 121, ORDERS)), "at most 120"),
            (heartbeat(""), "clientID has 0 characters"),
            (Heartbeat(), "has no body"),
        ]:
            code, remark = await second.error_response(request)
            assert code == ResponseCode.SYSTEM_ERROR
            assert reason in remark
        assert broker.clients.find("b") is None
        assert list(broker.clients.groups()) == ["g"]
        assert (await second.error_response(GetConsumerIds("h")))[0] == ResponseCode.SYSTEM_ERROR


async def test_a_giant_heartbeat_is_refused() -> None:
    subscriptions = [subscription(f"topic-{number}", "x" * 2000) for number in range(600)]
    async with running(group_broker()) as server, connected_client(server) as client:
        assert "the limit is 1048576" in (await client.error_response(heartbeat("c", consumer("g", *subscriptions))))[1]


@pytest.mark.parametrize("expression", ["x" * 900_000, "||".join(map(str, range(8_000)))])
async def test_one_connection_does_not_fill_the_memory_with_subscriptions(expression: str) -> None:
    """Each heartbeat is short enough, but each names another group, and all of them stay."""
    broker = group_broker()
    long = Subscription(topic="orders", sub_string=expression)
    async with running(broker) as server, connected_client(server) as client, connected_client(server) as other:
        for number in range(20):
            response = await client.send_request(heartbeat("c", consumer(f"g{number}", long)))
            if response.code != ResponseCode.SUCCESS:
                break
        assert "at most 4194304 are allowed" in (response.remark or "")
        assert 3 <= number <= 5
        await client.call(UnregisterClient(client_id="c", producer_group="", consumer_group="g0"))
        await client.call(heartbeat("c", consumer("again", long)))
        await client.call(heartbeat("c", consumer("again", long)))
        await other.call(heartbeat("other", consumer("g0", ORDERS)))


async def test_a_subscription_is_checked_before_the_consumer_starts() -> None:
    broker = group_broker(replace(SETTINGS, property_filter=False))
    async with running(broker) as server, connected_client(server) as client:
        tags = ClientCheck(client_id="c", group="g", subscription_data=subscription("orders", "a || b"))
        await client.call(CheckClientConfig(body=tags))
        sql = ClientCheck(client_id="c", group="g", subscription_data=subscription("orders", "a > 1", kind="SQL92"))
        assert (await client.error_response(CheckClientConfig(body=sql)))[0] == ResponseCode.SYSTEM_ERROR


async def test_an_invalid_expression_is_rejected_with_its_position() -> None:
    check = ClientCheck(client_id="c", group="g", subscription_data=subscription("orders", "a > ", kind="SQL92"))
    async with running(group_broker()) as server, connected_client(server) as client:
        code, remark = await client.error_response(CheckClientConfig(body=check))
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "position" in remark


async def test_unregistering_an_unknown_client_is_not_an_error() -> None:
    async with running(group_broker()) as server, connected_client(server) as client:
        response = await client.send_request(UnregisterClient(client_id="c", producer_group="p", consumer_group="g"))
        assert (response.code, response.ext) == (0, {})


async def test_no_state_remains_of_clients_that_have_left() -> None:
    broker = group_broker()
    async with running(broker) as server:
        async with connected_client(server) as client:
            await client.call(heartbeat("c", consumer("g", ORDERS), producers=("p",)))
            await client.call(heartbeat("renamed", consumer("g", ORDERS), producers=("p",)))
            assert broker.clients.find("c") is None
        await until(lambda: not broker.clients.groups())
        assert [value for name, value in vars(broker.clients).items() if isinstance(value, dict) and value] == []


async def _hears_of_a_change(client: RawGroupClient) -> None:
    command = await client.next_pushed()
    assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert command.is_oneway
    assert command.fields(NotifyConsumerIdsChanged).consumer_group == "g"


def test_a_heartbeat_body_may_leave_out_its_sets() -> None:
    assert HeartbeatData.from_bytes(b'{"clientID":"c"}').consumer_data_set == []
