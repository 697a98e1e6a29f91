"""What the sink to Delta tables can be told."""

from dataclasses import dataclass
from pathlib import Path

from ariane.errors import SettingsError
from ariane.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOptions:
    path: str | None = setting(
        None, key="path", doc="The table's directory, which the driver and every executor can write to."
    )
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
        if self.path is None:
            raise SettingsError("no table is given: add the option path, or .save(path), or .start(path)")
        if "://" in self.path:
            raise SettingsError(
                f"path {self.path[:200]} is an address: give a directory, such as /data/orders, that the driver and "
                "every executor can write to"
            )
        if self.compression not in ("zstd", "snappy", "lz4", "gzip", "none"):
            raise SettingsError(f"option compression is {self.compression[:80]!r}: zstd, snappy, lz4, gzip or none")
        if (self.app_id is None) != (self.app_version is None):
            raise SettingsError("options txnAppId and txnVersion belong together: give both or none")

    @property
    def root(self) -> Path:
        assert self.path is not None, "checked when it was made"
        return Path(self.path).absolute()
