"""The functions of users that are told what a send came to."""

import logging
from collections.abc import Callable

from ariane.client.send_result import SendResult

log = logging.getLogger(__name__)

Callback = Callable[[SendResult | None, Exception | None], None]
"""Called once: with the result, or with the error."""


def call_back(callback: Callback, result: SendResult | None, failure: Exception | None) -> None:
    try:
        callback(result, failure)
    except Exception:  # the edge of a user's function
        log.exception("the callback of a send failed")
