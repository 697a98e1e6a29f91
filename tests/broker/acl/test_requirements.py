"""The permissions that each request of a broker requires."""

import importlib
import pkgutil
from typing import Any

import pytest

import ariane.wire.requests
from ariane.broker.acl.requirements import manages_accounts, requirements_of, requires_admin
from ariane.model.group import Subscription
from ariane.model.route import MessageQueue
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import REQUESTS, ServedBy
from ariane.wire.fields import Request
from ariane.wire.requests import brokers, clients, groups, messages, offsets, pull, send

for module in pkgutil.iter_modules(ariane.wire.requests.__path__):
    importlib.import_module(f"ariane.wire.requests.{module.name}")

SENT: dict[str, Any] = {"producer_group": "p", "default_topic": "TBW102", "default_topic_queue_nums": 4, "queue_id": 0}
SENT |= {"sys_flag": 0, "born_timestamp": 0, "flag": 0}
PULLED: dict[str, Any] = {"queue_id": 0, "queue_offset": 0, "max_msg_nums": 32, "sys_flag": 0, "commit_offset": 0}
PULLED |= {"suspend_timeout_millis": 0, "sub_version": 0, "consumer_group": "g"}
LOCKED = clients.QueueLocks(
    consumer_group="g", client_id="c", mq_set=[MessageQueue(topic="t", broker_name="b", queue_id=0)]
)
BEATING = clients.HeartbeatData(
    client_id="c",
    producer_data_set=[clients.ProducerData(group_name="p")],
    consumer_data_set=[
        clients.ConsumerData(
            group_name="g", subscription_data_set=[Subscription(topic="t"), Subscription(topic="%RETRY%g")]
        )
    ],
)
CHECKED = clients.ClientCheck(client_id="c", group="g", subscription_data=Subscription(topic="t"))


@pytest.mark.parametrize(
    ("client_request", "required"),
    [
        (send.SendMessage(topic="t", **SENT), {"topic:t PUB"}),
        (send.SendMessageV2(topic="t", **SENT), {"topic:t PUB"}),
        (send.SendBatch(topic="t", **SENT), {"topic:t PUB"}),
        (send.SendMessageV2(topic="%RETRY%g", **SENT), {"group:g SUB"}),
        (send.SendMessage(topic="RMQ_SYS_TRACE_TOPIC", **SENT), set()),
        (send.SendReplyV2(topic="DefaultCluster_REPLY_TOPIC", **SENT), set()),
        (send.SendBack(offset=0, group="g", delay_level=0), {"group:g SUB"}),  # type: ignore[arg-type]
        (pull.PullMessage(topic="t", **PULLED), {"topic:t SUB", "group:g SUB"}),
        (pull.LitePull(topic="t", **PULLED), {"topic:t SUB", "group:g SUB"}),
        (pull.PullMessage(topic="%RETRY%g", **PULLED), {"group:g SUB"}),
        (pull.PullMessage(topic="RMQ_SYS_TRACE_TOPIC", **PULLED), {"topic:RMQ_SYS_TRACE_TOPIC SUB", "group:g SUB"}),
        (pull.PullMessage(topic="%DLQ%g", **PULLED), {"group:g SUB"}),
        (send.SendMessageV2(topic="%DLQ%g", **SENT), {"group:g SUB"}),
        (messages.ViewMessage(0), set()),  # type: ignore[arg-type]
        (clients.GetConsumerConnections("g"), {"group:g SUB"}),
        (groups.GetConsumeStats("g", "t"), {"group:g SUB", "topic:t ANY"}),
        (groups.GetConsumeStats("g"), {"group:g SUB"}),
        (groups.GetConsumeTimeSpans("t", "g"), {"group:g SUB", "topic:t ANY"}),
        (groups.GetGroupConfig("g"), {"group:g SUB"}),
        (groups.ListGroupsOfTopic("t"), {"topic:t ANY"}),
        (offsets.GetCorrectionOffsets(compare_group="g", topic="t"), {"group:g SUB", "topic:t SUB"}),
        (brokers.GetBrokerStats("TOPIC_PUT_NUMS", "t"), {"topic:t ANY"}),
        (brokers.GetBrokerStats("GROUP_GET_NUMS", "t@g"), {"topic:t ANY", "group:g SUB"}),
        (brokers.GetBrokerStats("BROKER_PUT_NUMS", "DefaultCluster"), set()),
        (messages.QueryConsumeQueue("t", 0, 0, 1, "g"), {"topic:t SUB", "group:g SUB"}),
        (messages.QueryMessages(topic="t", key="k", max_num=1, begin_timestamp=0, end_timestamp=1), {"topic:t SUB"}),
        (clients.Heartbeat(BEATING), {"group:g SUB", "topic:t SUB"}),
        (clients.Heartbeat(clients.HeartbeatData(client_id="c")), set()),
        (clients.Heartbeat(), set()),
        (clients.UnregisterClient("c", producer_group="p"), set()),
        (clients.UnregisterClient("c", consumer_group="g"), {"group:g SUB"}),
        (clients.GetConsumerIds("g"), {"group:g SUB"}),
        (clients.CheckClientConfig(CHECKED), {"group:g SUB", "topic:t SUB"}),
        (clients.LockQueues(LOCKED), {"group:g SUB", "topic:t SUB"}),
        (clients.UnlockQueues(LOCKED), {"group:g SUB", "topic:t SUB"}),
        (clients.LockQueues(), set()),
        (clients.GetRunningInfo("g", "c"), {"group:g SUB"}),
        (offsets.GetConsumerOffset("g", "t", 0), {"group:g SUB", "topic:t SUB"}),
        (offsets.GetMaxOffset("t", 0), {"topic:t ANY"}),
        (offsets.GetMinOffset("%RETRY%g", 0), {"group:g SUB"}),
        (
            offsets.CloneGroupOffset(src_group="g", dest_group="h", topic="t"),
            {"group:g SUB", "group:h SUB", "topic:t SUB"},
        ),
        (offsets.ResetOffsets(topic="t", group="g", timestamp=0, is_force=True), {"group:g SUB", "topic:t SUB"}),
    ],
)
def test_what_a_request_requires(client_request: Request[Any], required: set[str]) -> None:
    assert {
        f"{requirement} {requirement.permission.name}" for requirement in requirements_of(client_request)
    } == required
    assert not requires_admin(type(client_request))


ADMINISTRATORS = {17, 25, 26, 45, 50, 51, 52, 53, 54, 60, 200, 204, 207, 215, 306, 309, 316, 323, 328, 329, 907}


def test_these_requests_are_for_administrators() -> None:
    served = [declared for declared in REQUESTS.values() if ServedBy.BROKER in declared.served_by]
    assert {int(declared.code) for declared in served if requires_admin(declared.request)} == ADMINISTRATORS


def test_accounts_are_managed_by_five_requests() -> None:
    codes = {code for code, declared in REQUESTS.items() if manages_accounts(declared.request)}
    assert codes == set(range(50, 55))


def test_an_undeclared_request_requires_an_administrator() -> None:
    assert requires_admin(REQUESTS[RequestCode.REGISTER_BROKER].request)
