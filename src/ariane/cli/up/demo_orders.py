"""The event stream of `ariane up --demo`: orders of a shop, with the difficulties of real data.

Few customers place most of the orders, an order has several events that must stay in order, prices differ by
currency, and one event in a hundred is malformed.
"""

import json
import logging
import random
from collections.abc import Iterator
from datetime import UTC, datetime

from ariane.cli.send.input import RateLimiter
from ariane.client.producer.producer import Producer
from ariane.clock import Clock
from ariane.errors import ArianeError
from ariane.lifecycle import TaskSet
from ariane.model.message import Message

log = logging.getLogger(__name__)

TOPIC = "orders"
BAD_SHARE = 0.01
_CUSTOMERS = 1_000
_SKEW = 1.2  # the first ten of a thousand customers place half of the orders
_OPEN_MAX = 500
_STEPS = ("created", "paid", "shipped")
_CANCELLED = "cancelled"
_REGIONS = {"eu": "EUR", "us": "USD", "cn": "CNY", "jp": "JPY"}
_GOODS = {"thread": 3.5, "loom": 240.0, "needle": 0.9, "spindle": 18.0, "dye": 7.25, "wool": 12.0}
_IN_FLIGHT_MAX = 1_000


class OrderStream:
    """Endless; the same seed gives the same events."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)  # noqa: S311 - sample data
        self._weights = [1 / rank**_SKEW for rank in range(1, _CUSTOMERS + 1)]
        self._customers: Iterator[int] = iter(())
        self._open: list[dict[str, object]] = []
        self._number = 0

    def next(self, now_ms: int) -> Message:
        """The next event: a new order, or the next step of one."""
        order = self._step() if self._open and self._goes_on() else self._create()
        event = {**order, "at": _iso(now_ms)}
        return Message(
            topic=TOPIC,
            body=self._maybe_bad(json.dumps(event, ensure_ascii=False)).encode(),
            tags=str(order["status"]),
            keys=(str(order["order_id"]), str(order["customer"])),
            properties={"region": str(order["region"]), "amount": str(order["amount"])},
            sharding_key=str(order["order_id"]),
        )

    def _goes_on(self) -> bool:
        return len(self._open) >= _OPEN_MAX or self._random.random() < 0.6

    def _create(self) -> dict[str, object]:
        self._number += 1
        region = self._random.choice(list(_REGIONS))
        item = self._random.choice(list(_GOODS))
        quantity = min(50, 1 + int(self._random.expovariate(0.6)))
        order: dict[str, object] = {
            "order_id": f"o-{self._number:08}",
            "customer": f"c-{self._customer():04}",
            "status": _STEPS[0],
            "region": region,
            "item": item,
            "quantity": quantity,
            "amount": round(quantity * _GOODS[item], 2),
            "currency": _REGIONS[region],
        }
        self._open.append(order)
        return order

    def _step(self) -> dict[str, object]:
        at = self._random.randrange(len(self._open))
        order = self._open[at]
        following = _STEPS[_STEPS.index(str(order["status"])) + 1]
        if following == "paid" and self._random.random() < 0.05:
            following = _CANCELLED
        order = {**order, "status": following}
        if following in (_STEPS[-1], _CANCELLED):
            self._open.pop(at)
        else:
            self._open[at] = order
        return order

    def _customer(self) -> int:
        customer = next(self._customers, None)
        if customer is None:  # many at a time, because each weighted draw sums up all weights
            self._customers = iter(self._random.choices(range(_CUSTOMERS), self._weights, k=500))
            customer = next(self._customers)
        return customer

    def _maybe_bad(self, text: str) -> str:
        if self._random.random() >= BAD_SHARE:
            return text
        return self._random.choice([_cut_off, _without_amount, _negative, _amount_as_text])(text)


def _cut_off(text: str) -> str:
    return text[: len(text) // 2]


def _without_amount(text: str) -> str:
    return json.dumps({name: value for name, value in json.loads(text).items() if name != "amount"})


def _negative(text: str) -> str:
    row = json.loads(text)
    return json.dumps({**row, "amount": -row["amount"]})


def _amount_as_text(text: str) -> str:
    row = json.loads(text)
    return json.dumps({**row, "amount": f"{row['amount']} {row['currency']}"})


def _iso(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")


async def feed(namesrv: str, rate: float, clock: Clock, stream: OrderStream) -> None:
    """Sends `rate` events a second, forever. An event that the broker refuses is logged and skipped."""
    limiter, sends = RateLimiter(rate, clock), TaskSet()
    async with Producer(namesrv, group="ariane-demo", send_timeout_s=10.0, batch_linger_ms=5.0) as producer:
        while True:
            await limiter.wait()
            if len(sends) >= _IN_FLIGHT_MAX:
                await sends.wait()
            sends.spawn(_send(producer, stream.next(clock.now_ms())))


async def _send(producer: Producer, event: Message) -> None:
    try:
        await producer.send(event)
    except ArianeError as error:
        log.warning("demo event not sent", extra={"reason": str(error)})
