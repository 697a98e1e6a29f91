"""The stream of the demo."""

import json
from collections import Counter

from ariane.cli.up.demo_orders import OrderStream
from ariane.model.message import Message

NOW_MS = 1_794_000_000_000


def events(count: int, seed: int = 1) -> list[Message]:
    stream = OrderStream(seed)
    return [stream.next(NOW_MS + number) for number in range(count)]


def is_bad(message: Message) -> bool:
    try:
        amount = json.loads(message.body).get("amount")
    except ValueError:
        return True
    return not isinstance(amount, float) or amount < 0


def test_the_same_seed_gives_the_same_orders() -> None:
    assert events(200, seed=7) == events(200, seed=7) != events(200, seed=8)


def test_one_row_in_a_hundred_is_malformed() -> None:
    bad = sum(map(is_bad, events(20_000)))
    assert 140 < bad < 260


def test_few_customers_place_most_of_the_orders() -> None:
    customers = Counter(message.key_list[1] for message in events(20_000))
    assert sum(count for _, count in customers.most_common(10)) > 20_000 / 3
    assert len(customers) > 100


def test_the_events_of_an_order_come_in_order_and_to_one_queue() -> None:
    steps: dict[str, list[str]] = {}
    for message in events(20_000):
        assert message.sharding_key == message.key_list[0]
        steps.setdefault(message.key_list[0], []).append(str(message.tags))
    ways = {tuple(way) for way in steps.values()}
    assert ways == {
        ("created",),
        ("created", "paid"),
        ("created", "paid", "shipped"),
        ("created", "cancelled"),
    }
