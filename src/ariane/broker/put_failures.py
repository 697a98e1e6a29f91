"""Why a message was not stored, as the code and the words that its sender gets.

    MessageRefused       MESSAGE_ILLEGAL         this message can never be stored here
    StoreFull            SERVICE_NOT_AVAILABLE   nothing is stored now; the remark has the use of each disk (1 is full)
    StoreReadOnly        SERVICE_NOT_AVAILABLE   nothing is stored until the broker is restarted
    any other            SYSTEM_ERROR

Java producers try another broker for all but the first.
"""

from contextlib import suppress

from ariane.errors import MessageRefused, RequestFailed, StoreError, StoreFull, StoreReadOnly
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode


def put_failure(error: StoreError, store: MessageStore) -> RequestFailed:
    if isinstance(error, MessageRefused):
        return RequestFailed(ResponseCode.MESSAGE_ILLEGAL, f"the message is refused: {error}")
    if isinstance(error, StoreFull):
        return RequestFailed(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}{_disks(store)}")
    if isinstance(error, StoreReadOnly):
        return RequestFailed(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")
    return RequestFailed(ResponseCode.SYSTEM_ERROR, f"the message is not stored: {error}")


def _disks(store: MessageStore) -> str:
    """The ratios in Apache's form, which operators' scripts look for."""
    layout = store.parts.layout
    with suppress(OSError):
        log, queues, index = (
            store.parts.disk.used_ratio(path) for path in (layout.commit_log, layout.root, layout.root)
        )
        return f" (CL: {log:.2f} CQ: {queues:.2f} INDEX: {index:.2f})"
    return ""
