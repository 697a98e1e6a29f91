"""Ariane: a message broker in pure Python that speaks Apache RocketMQ's wire protocol.

The public asynchronous API. `ariane.sync` has the same names for programs without an event loop.

    send        Producer TransactionProducer Message ReplyMessage reply_message
                SendResult SendStatus TransactionResult Decision COMMIT ROLLBACK UNKNOWN Reply
    receive     PushConsumer LitePullConsumer PullConsumer ScheduledPullConsumer Received Retry
                PullResult PullStatus PullContext FlowLimits MessageModel
                AVERAGELY BY_CIRCLE consistent_hash machine_room by_config
    administer  Admin TopicConfig GroupConfig Permission
    shared      MessageQueue ClientSettings ClientTlsSettings Secret
    errors      ArianeError SettingsError TransportError RequestFailed
                ClientError NoRoute MessageRejected SendFailed NoReply ClientClosed

Each name is imported on first use, so that `import ariane` costs nothing. Type checkers read `__init__.pyi`, which
scripts/stubs.py generates from this file.
"""

__version__ = "0.2.0"

_NAMES = {
    "ariane.client.admin": "Admin",
    "ariane.client.consumer.allocation": "AVERAGELY BY_CIRCLE by_config consistent_hash machine_room",
    "ariane.client.consumer.pull_loop": "FlowLimits",
    "ariane.client.consumer.invocation": "Retry",
    "ariane.client.consumer.lite_pull": "LitePullConsumer",
    "ariane.client.producer.producer": "Producer",
    "ariane.client.consumer.pull_request": "PullResult PullStatus",
    "ariane.client.consumer.pull": "PullConsumer PullContext ScheduledPullConsumer",
    "ariane.client.consumer.push": "PushConsumer",
    "ariane.client.consumer.message": "Received",
    "ariane.client.core.instance": "Reply",
    "ariane.client.producer.request_reply": "ReplyMessage reply_message",
    "ariane.client.producer.result": "SendResult SendStatus",
    "ariane.client.settings": "ClientSettings ClientTlsSettings",
    "ariane.client.producer.transactional": "COMMIT ROLLBACK TransactionProducer TransactionResult UNKNOWN",
    "ariane.errors": (
        "ArianeError ClientClosed ClientError MessageRejected NoReply NoRoute RequestFailed SendFailed SettingsError "
        "TransportError"
    ),
    "ariane.model.group": "GroupConfig MessageModel",
    "ariane.model.message": "Message",
    "ariane.model.route": "MessageQueue",
    "ariane.model.topic": "Permission TopicConfig",
    "ariane.settings": "Secret",
    "ariane.wire.requests.send": "Decision",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'ariane' has no attribute {name!r}")
    value: object = getattr(__import__(_HOME[name], fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
