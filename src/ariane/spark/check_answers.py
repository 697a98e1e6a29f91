"""Answers brokers that ask what became of a half message, from the ledger that the message names.

    its batch is not in the ledger                    not known yet: ask again
    it is a winner, and the batch is not ended yet    commit
    anything else                                     rollback

A winner of a batch that is over is a copy that a broker made in between; the message itself has been delivered.

A producer of the query's group lives in a thread of the process that commits. Spark ends that process when there was no
micro-batch for a minute; the next one, and the next run of any query of the group, answers what is asked again.
"""

import asyncio
import os
import threading
from functools import lru_cache

from ariane.client.loop_thread import SHARED
from ariane.client.settings import ClientSettings
from ariane.client.transactional import TransactionProducer
from ariane.errors import ArianeError
from ariane.model.message import StoredMessage
from ariane.spark.cluster import Cluster
from ariane.spark.half_tags import PROPERTY, HalfTag, parse_tag
from ariane.spark.ledger import Ledger
from ariane.spark.write_options import WriteOptions
from ariane.wire.requests.transactions import Decision

_PATIENCE_S = 5.0


class LedgerAnswers:
    """Threads may share it."""

    def __init__(self, settings: ClientSettings) -> None:
        self._cluster = Cluster(settings)
        self._lock = threading.Lock()
        self._ledgers: dict[str, Ledger] = {}

    def close(self) -> None:
        with self._lock:
            self._cluster.calls.close()

    def decide(self, tag: HalfTag) -> Decision:
        with self._lock:
            ledger = self._ledgers.get(tag.ledger)
            if ledger is None:
                ledger = self._ledgers[tag.ledger] = Ledger(self._cluster, tag.ledger, _PATIENCE_S)
            state = ledger.state(tag.query)
            if not state.is_recorded(tag.batch):
                return Decision.UNKNOWN
            record = state.decided.get(tag.batch)
            if record is None or state.is_ended(tag.batch):
                return Decision.ROLLBACK
            for winners in ledger.winners_of(record):
                if winners.attempt == tag.attempt and any(one.serial == tag.serial for one in winners.entries()):
                    return Decision.COMMIT
            return Decision.ROLLBACK


class CheckAnswers:
    """A producer of the group, in a thread, which answers as long as it is open."""

    def __init__(self, options: WriteOptions) -> None:
        self._answers = LedgerAnswers(options.client_settings())
        self._topics = [topic for topic in (options.topic, options.ledger_topic) if topic is not None]
        self._producer = TransactionProducer(group=options.group, check=self._check, settings=options.client_settings())

    def start(self) -> None:
        SHARED.take().run(self._start(), lambda nothing: nothing)

    def close(self) -> None:
        thread = SHARED.thread
        assert thread is not None, "start() took it"
        thread.run(self._producer.close(), lambda nothing: nothing)
        SHARED.give_back()
        self._answers.close()

    async def _start(self) -> None:
        await self._producer.start()
        for topic in self._topics:
            try:
                await self._producer.queues(topic)  # so that its brokers are known, and get to know us
            except ArianeError:  # they are found with the routes that are looked for every 30 s
                continue

    async def _check(self, message: StoredMessage) -> Decision:
        tag = parse_tag(message.properties.get(PROPERTY, ""))
        return await asyncio.to_thread(self._answers.decide, tag)


def answer_checks(options: WriteOptions) -> None:
    """From now on, as long as this process lives. Costs nothing when called again."""
    _started(options, os.getpid())


@lru_cache(maxsize=16)
def _started(options: WriteOptions, _pid: int) -> CheckAnswers:
    """Once in each process: a fork has no thread of its parent's."""
    answers = CheckAnswers(options)
    answers.start()
    return answers
