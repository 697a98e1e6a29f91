"""Made by scripts/stubs.py from __init__.py: change it there."""

from ariane.client.admin import Admin as Admin
from ariane.client.consumer.allocation import AVERAGELY as AVERAGELY
from ariane.client.consumer.allocation import BY_CIRCLE as BY_CIRCLE
from ariane.client.consumer.allocation import by_config as by_config
from ariane.client.consumer.allocation import consistent_hash as consistent_hash
from ariane.client.consumer.allocation import machine_room as machine_room
from ariane.client.consumer.invocation import Retry as Retry
from ariane.client.consumer.lite_pull import LitePullConsumer as LitePullConsumer
from ariane.client.consumer.message import Received as Received
from ariane.client.consumer.pull import PullConsumer as PullConsumer
from ariane.client.consumer.pull import PullContext as PullContext
from ariane.client.consumer.pull import ScheduledPullConsumer as ScheduledPullConsumer
from ariane.client.consumer.pull_loop import FlowLimits as FlowLimits
from ariane.client.consumer.pull_request import PullResult as PullResult
from ariane.client.consumer.pull_request import PullStatus as PullStatus
from ariane.client.consumer.push import PushConsumer as PushConsumer
from ariane.client.core.instance import Reply as Reply
from ariane.client.producer.producer import Producer as Producer
from ariane.client.producer.request_reply import ReplyMessage as ReplyMessage
from ariane.client.producer.request_reply import reply_message as reply_message
from ariane.client.producer.result import SendResult as SendResult
from ariane.client.producer.result import SendStatus as SendStatus
from ariane.client.producer.transactional import COMMIT as COMMIT
from ariane.client.producer.transactional import ROLLBACK as ROLLBACK
from ariane.client.producer.transactional import UNKNOWN as UNKNOWN
from ariane.client.producer.transactional import TransactionProducer as TransactionProducer
from ariane.client.producer.transactional import TransactionResult as TransactionResult
from ariane.client.settings import ClientSettings as ClientSettings
from ariane.client.settings import ClientTlsSettings as ClientTlsSettings
from ariane.errors import ArianeError as ArianeError
from ariane.errors import ClientClosed as ClientClosed
from ariane.errors import ClientError as ClientError
from ariane.errors import MessageRejected as MessageRejected
from ariane.errors import NoReply as NoReply
from ariane.errors import NoRoute as NoRoute
from ariane.errors import RequestFailed as RequestFailed
from ariane.errors import SendFailed as SendFailed
from ariane.errors import SettingsError as SettingsError
from ariane.errors import TransportError as TransportError
from ariane.model.group import GroupConfig as GroupConfig
from ariane.model.group import MessageModel as MessageModel
from ariane.model.message import Message as Message
from ariane.model.route import MessageQueue as MessageQueue
from ariane.model.topic import Permission as Permission
from ariane.model.topic import TopicConfig as TopicConfig
from ariane.settings import Secret as Secret
from ariane.wire.requests.send import Decision as Decision

__version__: str
__all__ = [
    "AVERAGELY",
    "BY_CIRCLE",
    "COMMIT",
    "ROLLBACK",
    "UNKNOWN",
    "Admin",
    "ArianeError",
    "ClientClosed",
    "ClientError",
    "ClientSettings",
    "ClientTlsSettings",
    "Decision",
    "FlowLimits",
    "GroupConfig",
    "LitePullConsumer",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageRejected",
    "NoReply",
    "NoRoute",
    "Permission",
    "Producer",
    "PullConsumer",
    "PullContext",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "Received",
    "Reply",
    "ReplyMessage",
    "RequestFailed",
    "Retry",
    "ScheduledPullConsumer",
    "Secret",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "SettingsError",
    "TopicConfig",
    "TransactionProducer",
    "TransactionResult",
    "TransportError",
    "by_config",
    "consistent_hash",
    "machine_room",
    "reply_message",
]
