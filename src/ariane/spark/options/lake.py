"""Options of the sinks to Delta and Iceberg tables, and the identity of a batch in a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ariane.errors import SettingsError
from ariane.settings import setting
from ariane.spark.options.base import family_members, read_options


@dataclass(frozen=True)
class Batch:
    """The application that writes it, and its number, which grows with each batch."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions:
    compression: str = setting("zstd", key="compression", doc="Of the Parquet files: zstd, snappy, lz4, gzip or none.")
    app_id: str | None = setting(
        None,
        key="txnAppId",
        doc="Batch: the application that writes. With txnVersion, a repeated write changes nothing. Streams have their "
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
        """Of a batch write with txnAppId and txnVersion."""
        return None if self.app_id is None or self.app_version is None else Batch(self.app_id, self.app_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOptions(LakeOptions):
    path: str | None = setting(
        None, key="path", doc="The table's directory, which the driver and every executor can write to."
    )

    def __post_init__(self) -> None:
        LakeOptions.__post_init__(self)
        if self.path is None:
            raise SettingsError("no table is given: add the option path, or .save(path), or .start(path)")
        if "://" in self.path:
            raise SettingsError(
                f"path {self.path[:200]} is an address: give a directory, such as /data/orders, that the driver and "
                "every executor can write to"
            )

    @property
    def root(self) -> Path:
        assert self.path is not None, "checked in __post_init__"
        return Path(self.path).absolute()


_CATALOG = "catalog."
"""The prefix of options that pyiceberg declares: properties of catalogs and of their file IO."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergOptions(LakeOptions):
    table: str | None = setting(
        None,
        key=("table", "path"),
        doc="Namespace and name of the table: lake.orders. Both are created if they are missing.",
    )
    catalog: str = setting(
        "default",
        key="catalog",
        doc="The catalog's name, under which pyiceberg's own configuration may have more properties. `catalog.uri`, "
        "`catalog.warehouse`, `catalog.type` and all other properties of catalogs are options, too.",
    )

    def __post_init__(self) -> None:
        LakeOptions.__post_init__(self)
        if self.table is None:
            raise SettingsError("no table is given: add the option table, or .save(table), or .start(table)")
        if "/" in self.table:
            raise SettingsError(
                f"table {self.table[:200]} is a path: give namespace and name, such as lake.orders; the option "
                "catalog.warehouse says where tables are"
            )
        if "." not in self.table or not all(self.table.split(".")):
            raise SettingsError(f"table {self.table[:200]} has no namespace: a name such as lake.orders expected")

    @property
    def identifier(self) -> tuple[str, ...]:
        assert self.table is not None, "checked in __post_init__"
        return tuple(self.table.split("."))


def read_iceberg_options(options: Mapping[str, str]) -> IcebergOptions:
    return read_options(IcebergOptions, options, family=_CATALOG)


def catalog_properties(options: Mapping[str, str]) -> dict[str, str]:
    """By pyiceberg's names. Passwords and tokens may be among them."""
    return family_members(options, _CATALOG)
