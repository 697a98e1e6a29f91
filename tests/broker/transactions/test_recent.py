"""Half messages in memory: what is made of them is what is made of their records."""

import pytest

from ariane.broker.transactions import recent
from ariane.broker.transactions.half_messages import HalfRecord, half
from ariane.broker.transactions.recent import RecentHalfMessage, RecentHalfMessages
from ariane.store.append.draft import Appended, Draft
from tests.broker.transaction_fixtures import TOPIC, transaction_broker
from tests.store.stores import HOST

TEXT = b"TAGS\x01paid\x02KEYS\x01k\x02UNIQ_KEY\x017F01\x02TRAN_MSG\x01true\x02PGROUP\x01payers\x02CLUSTER\x01c\x02"


def a_draft(text: bytes = TEXT) -> Draft:
    return Draft(
        topic=TOPIC,
        queue_id=3,
        body=b"body",
        properties=text,
        born_timestamp_ms=1_700_000_000_000,
        born_host=HOST,
        flag=7,
        sys_flag=4,
        reconsume_times=1,
        tags_code=3433164,
        keys=("7F01", "k"),
    )


@pytest.mark.parametrize("checksums", [False, True], ids=["plain", "with record checksums"])
async def test_the_delivered_message_is_the_same_from_memory_and_from_the_log(checksums: bool) -> None:
    async with transaction_broker(store={"seal_records": checksums}) as broker:
        draft = half(a_draft())
        text = draft.properties
        (appended,) = broker.store.append([draft])
        assert isinstance(appended, Appended)
        record = broker.transactions.queue.at(appended.queue_offset)
        assert record is not None
        stored, kept = HalfRecord.of(record), RecentHalfMessage(TOPIC, 3, text, draft, appended)
        assert kept.real() == stored.real()
        for name in ("real_topic", "first_offset", "physical_offset", "size", "producer_group"):
            assert getattr(kept, name) == getattr(stored, name), name


@pytest.mark.parametrize(
    ("text", "group", "is_its_own"),
    [
        (TEXT, "payers", True),
        (TEXT, "payer", False),
        (TEXT, "ayers", False),
        (TEXT, "", False),
        (TEXT, "payers\x02CLUSTER\x01c", False),
        (TEXT, "\ud800", False),
        (b"PGROUP\x01payers\x02", "payers", True),
        (b"xPGROUP\x01payers\x02", "payers", False),
        (b"PGROUP\x01\xc3\xa9\x02", "é", True),
    ],
)
def test_only_its_own_group_may_end_it(text: bytes, group: str, is_its_own: bool) -> None:
    kept = RecentHalfMessage(TOPIC, 3, text, a_draft(), Appended(1, 2, 3, 4))
    assert kept.is_of_group(group) == is_its_own


def test_the_oldest_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "RECENT_MAX", 3)
    kept_messages = RecentHalfMessages()
    for offset in range(5):
        kept_messages.add(TOPIC, 3, TEXT, a_draft(), Appended(0, offset, 10, 0))
    assert [kept_messages.take(offset) is not None for offset in range(5)] == [False, False, True, True, True]
    assert len(kept_messages) == 0


def test_the_oldest_go_when_they_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "RECENT_BYTES_MAX", 25)
    kept_messages = RecentHalfMessages()
    for offset in range(4):
        kept_messages.add(TOPIC, 3, TEXT, a_draft(), Appended(0, offset, 10, 0))
        kept_messages.take(7)
    assert [kept_messages.take(offset) is not None for offset in range(4)] == [False, False, True, True]
