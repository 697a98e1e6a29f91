"""What the sink to Iceberg tables can be told."""

from collections.abc import Mapping
from dataclasses import dataclass

from ariane.errors import SettingsError
from ariane.settings import setting
from ariane.spark.lake_options import LakeOptions
from ariane.spark.option_values import family_members, read_options

_CATALOG = "catalog."
"""How options begin that pyiceberg declares: properties of its catalogs, and those of whoever reaches their files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergOptions(LakeOptions):
    table: str | None = setting(
        None, key=("table", "path"), doc="Its namespace and its name: lake.orders. Both are made when they are missing."
    )
    catalog: str = setting(
        "default",
        key="catalog",
        doc="The catalog's name, under which pyiceberg's own configuration may say more. `catalog.uri`, "
        "`catalog.warehouse`, `catalog.type` and all other properties of catalogs are options, too.",
    )

    def __post_init__(self) -> None:
        LakeOptions.__post_init__(self)
        if self.table is None:
            raise SettingsError("no table is given: add the option table, or .save(table), or .start(table)")
        if "/" in self.table:
            raise SettingsError(
                f"table {self.table[:200]} is a place: give namespace and name, such as lake.orders; the option "
                "catalog.warehouse says where tables are"
            )
        if "." not in self.table or not all(self.table.split(".")):
            raise SettingsError(f"table {self.table[:200]} is no name with a namespace: such as lake.orders expected")

    @property
    def identifier(self) -> tuple[str, ...]:
        assert self.table is not None, "checked when it was made"
        return tuple(self.table.split("."))


def read_iceberg_options(options: Mapping[str, str]) -> IcebergOptions:
    return read_options(IcebergOptions, options, family=_CATALOG)


def catalog_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Under the names that pyiceberg has for them. Passwords and tokens are among them."""
    return family_members(options, _CATALOG)
