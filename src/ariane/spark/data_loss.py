"""Reports lost or damaged messages: stops the query, or logs a warning, as the option failOnDataLoss says."""

import logging

from ariane.errors import StoreError

log = logging.getLogger(__name__)


def report_loss(what: str, *, fail: bool) -> None:
    """StoreError if `fail`, else a warning in the log of the driver or executor."""
    if fail:
        raise StoreError(
            f"{what}. The query stops because failOnDataLoss is true; set it to false to continue without these "
            "messages"
        )
    log.warning("%s; continuing without these messages (failOnDataLoss=false)", what)
