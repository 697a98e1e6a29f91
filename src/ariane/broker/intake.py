"""The one way into the log: for sends, retries, transactions, deliveries and replies alike."""

import asyncio
import itertools
from collections.abc import Callable, Sequence

from ariane.broker.counters import Counters
from ariane.broker.delay_rewrite import DelayRules, deferred
from ariane.broker.incoming import SEAL, Incoming, draft_of, incoming_of, keys_of
from ariane.broker.settings import BrokerSettings
from ariane.clock import Clock
from ariane.errors import StoreError
from ariane.model.message import Property
from ariane.store.append import Outcome
from ariane.store.delay_levels import parse_levels
from ariane.store.draft import Appended, Draft
from ariane.store.draft_batch import AppendedBatch, DraftBatch
from ariane.store.draft_batches import DraftBatches
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType
from ariane.wire.codes import ResponseCode

__all__ = ["SEAL", "Incoming", "Intake", "draft_of", "incoming_of", "keys_of", "means_durable", "wants_durable"]

_WAIT = Property.WAIT


class Intake:
    """For the event loop alone; only `durable` waits."""

    def __init__(
        self, service: StoreService, settings: BrokerSettings, clock: Clock, counters: Counters | None = None
    ) -> None:
        self.counters = counters or Counters()
        self._service = service
        self._store = service.store
        self._settings = settings
        self._clock = clock
        self._levels_ms = parse_levels(settings.store.message_delay_levels)
        self.is_sync = service.store.settings.flush_disk_type is FlushDiskType.SYNC
        self._waiting: dict[int, float] = {}
        self._waiting_messages = 0
        self._tickets = itertools.count()
        self._store_staged: Callable[[], None] = _nothing_staged

    # --- into the log -----------------------------------------------------------------------------------------------

    def put(self, message: Incoming) -> Appended:
        """Stores a message, or puts it aside until its delay is over; the StoreError says why it was not taken."""
        return self.take(self.drafted(message))

    def drafted(self, message: Incoming) -> Draft:
        """The message as it is stored now: itself, or put aside until its delay is over."""
        later = deferred(message, self._rules(), self._clock.now_ms())
        if later is None:
            return draft_of(message)
        draft = draft_of(later.message)
        draft.delay_ms = later.delay_ms
        return draft

    def put_together(self, messages: Sequence[Incoming]) -> list[Appended]:
        """A batch, all or none. Delays are for single messages: nothing is put aside here."""
        return self.take_together([draft_of(message) for message in messages])

    def stage(self, store_staged: Callable[[], None]) -> None:
        """Calls `store_staged` when this turn of the loop ends, or before anything else goes to the log or is staged.

        So whoever stages messages keeps the order in which they came. It may be called when there is nothing to store.
        """
        self._store_staged()
        self._store_staged = store_staged
        asyncio.get_running_loop().call_soon(store_staged)

    def take(self, draft: Draft) -> Appended:
        """Stores a draft as it is: for those who know that no delay is asked for, or that it is over."""
        self._store_staged()
        appended = _appended(self._store.append((draft,)))[0]
        self.counters.put(draft.topic, appended.size, self._store.append_s)
        return appended

    def take_each(self, drafts: Sequence[Draft]) -> list[Outcome]:
        """Stores drafts with one append, each for itself; what became of each."""
        self._store_staged()
        outcomes = self._store.append(drafts)
        taken = [(draft.topic, one.size) for draft, one in zip(drafts, outcomes, strict=True) if type(one) is Appended]
        if taken:
            topics, sizes = zip(*taken, strict=True)
            self.counters.put_all(topics, sizes, self._store.append_s)
        return outcomes

    def take_together(self, drafts: Sequence[Draft]) -> list[Appended]:
        """A batch, all or none, of one topic."""
        self._store_staged()
        appended = _appended(self._store.append_together(drafts))
        if appended:
            self.counters.put_together(drafts[0].topic, appended)
        return appended

    def take_batch(self, batch: DraftBatch) -> AppendedBatch:
        """A client's batch, all or none."""
        self._store_staged()
        appended = self._store.append_batch(batch)
        if isinstance(appended, StoreError):
            raise appended.with_traceback(None)
        self.counters.put_batch(batch.topic, appended.sizes)
        return appended

    def take_batches(self, drafts: DraftBatches) -> list[AppendedBatch | StoreError]:
        """Several batches of one topic, each all or none; what became of each."""
        self._store_staged()
        outcomes = self._store.append_batches(drafts)
        taken = [one.sizes for one in outcomes if isinstance(one, AppendedBatch)]
        if taken:
            self.counters.put_batch(drafts.topic, list(itertools.chain.from_iterable(taken)), len(taken))
        return outcomes

    def _rules(self) -> DelayRules:
        return DelayRules(self._levels_ms, self._settings.timer_enable, self._settings.timer_delay_max_s)

    # --- until it is durable ----------------------------------------------------------------------------------------

    def is_safe(self, appended: Appended) -> bool:
        """Whether there is nothing to wait for: a sync has covered it, or flushDiskType does not ask for one."""
        return not self.is_sync or appended.end <= self._store.flusher.flushed_to

    async def durable(self, appended: Appended | Sequence[Appended], *, wait: bool = True) -> ResponseCode:
        """SUCCESS, or FLUSH_DISK_TIMEOUT: it is stored, but no sync has covered it in time.

        `wait` is `wants_durable(properties)`. StoreReadOnly when the sync failed: then nobody knows what is on the
        disk, and the producer must not take the message for sent.
        """
        outcomes = [appended] if isinstance(appended, Appended) else list(appended)
        if not wait or not self.is_sync or not outcomes:
            return ResponseCode.SUCCESS
        ticket = next(self._tickets)
        self._waiting_messages += len(outcomes)
        began = self._waiting[ticket] = self._clock.monotonic()
        try:
            await self._service.wait_durable(outcomes)
        except TimeoutError:
            return ResponseCode.FLUSH_DISK_TIMEOUT
        finally:
            del self._waiting[ticket]
            self._waiting_messages -= len(outcomes)
            self.counters.sync_s.add(self._clock.monotonic() - began)
        return ResponseCode.SUCCESS

    @property
    def waiting(self) -> int:
        """How many messages wait for a sync."""
        return self._waiting_messages

    @property
    def longest_wait_ms(self) -> int:
        """How long the first of them has waited: a dict keeps its keys in the order in which they came."""
        first = next(iter(self._waiting.values()), None)
        return 0 if first is None else round((self._clock.monotonic() - first) * 1000)


def wants_durable(properties: dict[str, str]) -> bool:
    """Whether the producer waits for durability: WAIT=false says that it does not."""
    return means_durable(properties.get(_WAIT))


def means_durable(wait: str | None) -> bool:
    """The same by the value of WAIT."""
    return wait is None or wait.lower() != "false"


def _nothing_staged() -> None:
    pass


def _appended(outcomes: Sequence[Outcome]) -> list[Appended]:
    taken = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
    for outcome in outcomes:
        if isinstance(outcome, StoreError):
            # The store tells many callers the same object; without this its traceback would grow with each of them.
            raise outcome.with_traceback(None)
    return taken
