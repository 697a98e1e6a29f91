"""What happens when messages that were to be read are gone or damaged: the query stops, or says so and goes on."""

import logging

from ariane.errors import StoreError

log = logging.getLogger(__name__)


def report_loss(what: str, *, fail: bool) -> None:
    """Never silent: StoreError when the query must fail, else a warning in the log of the driver or executor."""
    if fail:
        raise StoreError(
            f"{what}. The query stops because failOnDataLoss is true; set it to false to go on without these messages"
        )
    log.warning("%s; going on without these messages (failOnDataLoss=false)", what)
