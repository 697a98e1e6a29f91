"""The property of a half message that names its origin, by which the ledger finds its outcome."""

from dataclasses import dataclass

from ariane.errors import RecordError

PROPERTY = "SPARK_TX"


@dataclass(frozen=True, slots=True)
class HalfMessageOrigin:
    """`ledger query batch partition attempt serial`, separated by blanks; none of them contains one."""

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


def parse_origin(text: str) -> HalfMessageOrigin:
    parts = text.split(" ")
    if len(parts) != 6 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in _numbers(parts)):
        raise RecordError(f"property {PROPERTY} is {text[:200]!r}: a half message of this group was not sent by Spark")
    ledger, query, batch, partition, attempt, serial = parts
    return HalfMessageOrigin(ledger, query, int(batch), int(partition), attempt, int(serial))


def _numbers(parts: list[str]) -> tuple[str, str, str]:
    return parts[2], parts[3], parts[5]
