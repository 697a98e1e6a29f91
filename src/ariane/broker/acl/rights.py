"""The rights of an account, for handlers: on what a request really touches, when its fields do not name it.

A handler that reads a message by its offset asks for the right on the message's own topic; one that lists topics or
groups shows those that the account has a right on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ariane.acl.rules import Requirement
from ariane.broker.acl.requirements import ANY, PUB, SUB, on_group, on_topic
from ariane.errors import RequestFailed
from ariane.rpc.handlers import Call
from ariane.wire.codes import ResponseCode


@dataclass(frozen=True, slots=True)
class Rights:
    allows: Callable[[Requirement], bool]

    def may_see_topic(self, topic: str) -> bool:
        return self.allows(on_topic(topic, ANY))

    def may_see_group(self, group: str) -> bool:
        return self.allows(on_group(group))

    def may_publish(self, topic: str) -> bool:
        return self.allows(on_topic(topic, PUB))

    def require_publish(self, topic: str) -> None:
        """RequestFailed unless messages may be sent to `topic`, which the request names."""
        requirement = on_topic(topic, PUB)
        if not self.allows(requirement):
            raise RequestFailed(ResponseCode.NO_PERMISSION, f"No default permission for {requirement}")

    def require_read_of_message(self, topic: str) -> None:
        """RequestFailed unless a message, which the request names by its offset, may be read in its `topic`."""
        self._require_on_message(on_topic(topic, SUB))

    def require_end_of_transaction(self, topic: str) -> None:
        """RequestFailed unless a half message may be published in its own `topic`."""
        self._require_on_message(on_topic(topic, PUB))

    def _require_on_message(self, requirement: Requirement) -> None:
        """The remark does not name the topic: who tries all offsets should not learn which topics there are."""
        if not self.allows(requirement):
            permission = requirement.permission.name
            raise RequestFailed(
                ResponseCode.NO_PERMISSION, f"the topic of this message requires the permission {permission}"
            )


EVERYTHING = Rights(lambda _: True)

RightsOf: TypeAlias = Callable[[Call], Rights]


def all_rights(call: Call) -> Rights:
    """Without access control."""
    return EVERYTHING
