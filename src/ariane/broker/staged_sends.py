"""Sends of one chunk of input, stored by one append and answered together.

A client with many messages in flight sends them back to back, and one read brings dozens. Appended one by one each
would pay for a write of its own; so a send is only staged while its chunk is looked at, and the first that is settled
stores them all. With SYNC_FLUSH all of them wait for one sync in one task.
"""

from collections.abc import Coroutine
from typing import Any

from ariane.broker.intake import Intake, wants_durable
from ariane.broker.put_failures import put_failure
from ariane.broker.send_answers import SendAnswers
from ariane.errors import StoreError
from ariane.model.message import Property
from ariane.rpc.failures import failure
from ariane.rpc.handlers import Call, encode_outcome
from ariane.store.append import Outcome
from ariane.store.draft import Appended, Draft
from ariane.store.message_store import MessageStore
from ariane.transport.connection import Staged
from ariane.wire.codes import ResponseCode

_SHARDING_KEY = Property.SHARDING_KEY
_UNIQUE_KEY = Property.UNIQUE_KEY


class StagedSend(Staged):
    __slots__ = ("_stage", "call", "draft", "outcome", "properties")

    def __init__(self, stage: "SendStage", draft: Draft, call: Call, properties: dict[str, str]) -> None:
        self._stage = stage
        self.draft = draft
        self.call = call
        self.properties = properties
        self.outcome: Outcome | None = None

    def settle(self) -> bytes | Coroutine[Any, Any, bytes | None] | None:
        return self._stage.settle(self)


class SendStage:
    def __init__(self, intake: Intake, store: MessageStore, answers: SendAnswers) -> None:
        self._intake = intake
        self._store = store
        self._answers = answers
        self._joinable: list[StagedSend] = []
        """Sends that wait for a sync and whose task has not begun: more of the same connection may join them."""

    def add(self, draft: Draft, call: Call, properties: dict[str, str]) -> StagedSend:
        staged = StagedSend(self, draft, call, properties)
        self._intake.stage(draft, staged)
        return staged

    def settle(self, staged: StagedSend) -> bytes | Coroutine[Any, Any, bytes | None] | None:
        self._intake.store_staged()
        outcome = staged.outcome
        if not isinstance(outcome, Appended):
            return self._refused(staged, outcome)
        if _SHARDING_KEY in staged.properties:
            self._intake.counters.put_ordered(staged.draft.topic, outcome.size)
        if self._intake.is_safe(outcome) or not wants_durable(staged.properties):
            return self._stored(staged, outcome)
        return self._wait_with_others(staged)

    def _refused(self, staged: StagedSend, outcome: StoreError | None) -> bytes | None:
        assert outcome is not None, "store_staged gives every staged send its outcome"
        refusal = put_failure(outcome, self._store)
        self._intake.counters.rejected(refusal)
        call = staged.call
        return encode_outcome(call.command, failure(call.connection, call.command, refusal))

    def _wait_with_others(self, staged: StagedSend) -> Coroutine[Any, Any, bytes | None] | None:
        """None when it joins others, whose task answers it, too: only those of its own connection, to which that task
        writes. Chunks of other connections come in the same turn of the loop, before the task begins."""
        others = self._joinable
        if others and others[0].call.connection is staged.call.connection:
            others.append(staged)
            return None
        self._joinable = [staged]
        return self._all_when_durable(self._joinable)

    async def _all_when_durable(self, together: list[StagedSend]) -> bytes | None:
        """Begun with the first send of a chunk; runs when all of the chunk have joined."""
        if self._joinable is together:
            self._joinable = []
        appended = [staged.outcome for staged in together if isinstance(staged.outcome, Appended)]
        try:
            code = await self._intake.durable(appended)
        except StoreError as error:
            return b"".join(filter(None, (self._refused(staged, error) for staged in together)))
        return b"".join(
            filter(None, (self._told(staged, code, one) for staged, one in zip(together, appended, strict=True)))
        )

    def _told(self, staged: StagedSend, code: ResponseCode, appended: Appended) -> bytes | None:
        if code is ResponseCode.SUCCESS:
            return self._stored(staged, appended)
        unique_key = staged.properties.get(_UNIQUE_KEY)
        answer = self._answers.answer(code, (appended,), staged.draft.queue_id, unique_key)
        return encode_outcome(staged.call.command, answer)

    def _stored(self, staged: StagedSend, appended: Appended) -> bytes | None:
        unique_key = staged.properties.get(_UNIQUE_KEY)
        return self._answers.stored(staged.call.command, appended, staged.draft.queue_id, unique_key)
