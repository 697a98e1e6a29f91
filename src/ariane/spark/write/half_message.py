"""What a half message says of its origin, in one property: enough to find out from a ledger what is to become of it."""

from dataclasses import dataclass

from ariane.errors import RecordError

PROPERTY = "SPARK_TX"


@dataclass(frozen=True, slots=True)
class HalfTag:
    """`ledger query batch partition attempt serial`, separated by blanks, which none of them holds."""

    ledger: str
    query: str
    batch: int
    partition: int
    attempt: str
    serial: int

    @property
    def prefix(self) -> str:
        """All but the serial number: the same for all half messages of an attempt."""
        return f"{self.ledger} {self.query} {self.batch} {self.partition} {self.attempt} "

    def __str__(self) -> str:
        return f"{self.prefix}{self.serial}"


def parse_tag(text: str) -> HalfTag:
    parts = text.split(" ")
    if len(parts) != 6 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in _numbers(parts)):
        raise RecordError(f"property {PROPERTY} is {text[:200]!r}: a half message of this group was not sent by Spark")
    ledger, query, batch, partition, attempt, serial = parts
    return HalfTag(ledger, query, int(batch), int(partition), attempt, int(serial))


def _numbers(parts: list[str]) -> tuple[str, str, str]:
    return parts[2], parts[3], parts[5]
