"""Messages that were gone before a pull reached them: the readers that Spark uses tell them to a log.

A query on the command line goes on, too, but says in the end that it is not complete.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ariane.spark import data_loss


@contextmanager
def telling_losses(tell: Callable[[str], None]) -> Iterator[None]:
    """Calls `tell` with a sentence for every loss inside."""
    handler = _Teller(tell)
    data_loss.log.addHandler(handler)
    try:
        yield
    finally:
        data_loss.log.removeHandler(handler)


class _Teller(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(str(record.args[0]) if isinstance(record.args, tuple) and record.args else record.getMessage())
