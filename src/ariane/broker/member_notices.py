"""Tells the members of a group that it has changed, so that they share out the queues anew at once.

Without the notice they would find out by themselves, at their next rebalance up to 20 s later.
"""

from collections.abc import Callable

from ariane.broker.consumer_group import ConsumerGroup
from ariane.broker.settings import BrokerSettings
from ariane.model.group import GroupConfig
from ariane.rpc.caller import tell_peer
from ariane.wire.requests.clients import NotifyConsumerIdsChanged


class MemberNotices:
    """Give `notices.members_changed` to `Clients`. Both the broker's switch and the group's must be on."""

    def __init__(self, settings: BrokerSettings, config_of: Callable[[str], GroupConfig | None]) -> None:
        self._settings = settings
        self._config_of = config_of

    def members_changed(self, group: ConsumerGroup) -> None:
        if self._settings.notify_ids_changed and self._group_wants_notices(group.name):
            notice = NotifyConsumerIdsChanged(consumer_group=group.name)
            for connection in group.members:
                tell_peer(connection, notice)

    def _group_wants_notices(self, name: str) -> bool:
        config = self._config_of(name)
        return config is None or config.notify_consumer_ids_changed_enable
