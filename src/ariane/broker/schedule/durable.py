"""Progress may be noted only when what it rests on cannot be lost."""

import logging

from ariane.errors import StoreReadOnly
from ariane.store.draft import Appended
from ariane.store.service import StoreService

log = logging.getLogger(__name__)


async def log_durable(service: StoreService) -> bool:
    """Waits until all that is in the log now is durable; whether it is. Not: nothing may be noted this time."""
    end = service.store.parts.commit_log.max_offset
    try:
        await service.wait_durable([Appended(end, 0, 0, 0)])
    except (TimeoutError, StoreReadOnly) as error:
        log.warning("progress of waiting messages not noted", extra={"reason": str(error) or "the sync takes too long"})
        return False
    return True
