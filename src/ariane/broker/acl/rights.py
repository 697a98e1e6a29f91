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

    def require_read(self, topic: str) -> None:
        """RequestFailed unless messages of `topic` may be read."""
        self._require(on_topic(topic, SUB))

    def require_publish(self, topic: str) -> None:
        """RequestFailed unless messages may be sent to `topic`."""
        self._require(on_topic(topic, PUB))

    def require_known(self, topic: str) -> None:
        """RequestFailed unless `topic` may be read or written."""
        self._require(on_topic(topic, ANY))

    def require_group(self, group: str) -> None:
        self._require(on_group(group))

    def _require(self, requirement: Requirement) -> None:
        if not self.allows(requirement):
            raise RequestFailed(ResponseCode.NO_PERMISSION, f"No default permission for {requirement}")


EVERYTHING = Rights(lambda _: True)

RightsOf: TypeAlias = Callable[[Call], Rights]


def all_rights(call: Call) -> Rights:
    """Without access control."""
    return EVERYTHING
