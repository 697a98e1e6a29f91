"""What every sink to lake tables can be told, and how a batch is named that a table can know."""

from dataclasses import dataclass

from ariane.errors import SettingsError
from ariane.settings import setting


@dataclass(frozen=True)
class Batch:
    """Whose it is, and its number, which grows."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions:
    compression: str = setting("zstd", key="compression", doc="Of the Parquet files: zstd, snappy, lz4, gzip or none.")
    app_id: str | None = setting(
        None,
        key="txnAppId",
        doc="Batch: whose write this is. With txnVersion, a write that is repeated changes nothing. Streams have their "
        "own, from their checkpoint.",
    )
    app_version: int | None = setting(
        None, key="txnVersion", minimum=0, doc="Batch: a number that grows with each write of txnAppId."
    )

    def __post_init__(self) -> None:
        if self.compression not in ("zstd", "snappy", "lz4", "gzip", "none"):
            raise SettingsError(f"option compression is {self.compression[:80]!r}: zstd, snappy, lz4, gzip or none")
        if (self.app_id is None) != (self.app_version is None):
            raise SettingsError("options txnAppId and txnVersion belong together: give both or none")

    @property
    def batch(self) -> Batch | None:
        """Of a batch write, when it has a name."""
        return None if self.app_id is None or self.app_version is None else Batch(self.app_id, self.app_version)
