"""Iceberg tables: one commit for each batch, and data files with the field ids of the table.

A commit adds the files of a batch and sets a property of the table to the batch number. Properties, unlike snapshots,
do not expire: the table always knows what it has. A catalog accepts a commit only if the table's branch is where the
commit began. So of two writers of one batch one is rejected, and finds the property when it looks again.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import PyArrowFileIO, UnsupportedPyArrowTypeException, schema_to_pyarrow
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.locations import load_location_provider
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ariane.errors import ArianeError, SettingsError
from ariane.lifecycle import Backoff
from ariane.spark.lake.base import WrittenFile, write_file
from ariane.spark.lake.iceberg_catalog import CatalogConfig
from ariane.spark.options.lake import Batch, IcebergOptions

# --- the schema ---


def check_columns(table: Table, name: str, schema: pa.Schema) -> None:
    """SettingsError when names or types of columns differ. Order and nullability may differ: rows are checked later."""
    existing, written = _kinds(schema_to_pyarrow(table.schema())), _kinds(schema)
    if existing != written:
        different = sorted({column for column, _ in existing.items() ^ written.items()})
        columns = ", ".join(f"{field.name} {field.field_type}" for field in table.schema().fields)
        raise SettingsError(
            f"columns {', '.join(different)} of the data frame do not fit table {name}: select what the table has, "
            f"{columns}"
        )


def _kinds(schema: pa.Schema) -> dict[str, object]:
    return {field.name: _kind(field.type) for field in schema}


def _kind(type_: pa.DataType) -> object:
    """Equal for Arrow types that are the same Iceberg type: it has no small integers, and no large strings."""
    if pa.types.is_struct(type_):
        return tuple((field.name, _kind(field.type)) for field in type_)
    if pa.types.is_map(type_):
        return "map", _kind(type_.key_type), _kind(type_.item_type)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return "list", _kind(type_.value_type)
    if pa.types.is_int8(type_) or pa.types.is_int16(type_):
        return "int32"
    return str(type_).removeprefix("large_")


# --- opening and creating tables ---

_VERSION_MAX = 2


def open_table(catalog: Catalog, options: IcebergOptions, schema: pa.Schema) -> Table:
    """Creates the table if it is missing; SettingsError when this sink cannot write rows of this schema to it."""
    try:
        table = catalog.load_table(options.identifier)
    except NoSuchTableError:
        table = _create(catalog, options, schema)
    for location in (table.location(), table.location_provider().new_data_location("some.parquet")):
        local_path(options, location)
    if table.format_version > _VERSION_MAX:
        raise SettingsError(
            f"table {options.table} has format version {table.format_version}, which pyiceberg does not write yet: use "
            f"one of version {_VERSION_MAX}"
        )
    if not table.spec().is_unpartitioned():
        columns = ", ".join(field.name for field in table.spec().fields)
        raise SettingsError(
            f"table {options.table} is partitioned by {columns}, which this sink does not support: use another table"
        )
    check_columns(table, str(options.table), schema)
    return table


def local_path(options: IcebergOptions, location: str) -> Path:
    """SettingsError when it is not a local path, or a relative one, which each process would resolve differently."""
    scheme, _, path = PyArrowFileIO.parse_location(location)
    if scheme != "file" or not (location.startswith("file:") or Path(location).is_absolute()):
        raise SettingsError(
            f"table {options.table} is at {location[:200]}: this sink writes to directories that the driver and every "
            "executor see under the same path, such as catalog.warehouse=/data/lake"
        )
    return Path(path)


def _create(catalog: Catalog, options: IcebergOptions, schema: pa.Schema) -> Table:
    """Checks the location before the table is created, so that none is left where it would be refused. Only the
    namespace may stay."""
    catalog.create_namespace_if_not_exists(options.identifier[:-1])
    try:
        staged = catalog.create_table_transaction(options.identifier, schema)
    except UnsupportedPyArrowTypeException as error:
        raise SettingsError(
            f"column {error.field.name} cannot be in an Iceberg table, which has no type {error.field.type}: cast it "
            "to another type, or leave it out"
        ) from error
    except ValueError as error:  # columns without a type, namespaces within namespaces
        raise SettingsError(
            f"table {options.table} cannot be created ({error}): change the data frame or the name, or create the "
            "table yourself"
        ) from error
    local_path(options, staged.table_metadata.location)
    try:
        return staged.commit_transaction()
    except (CommitFailedException, TableAlreadyExistsError):  # another process has just created it
        return catalog.load_table(options.identifier)


# --- commits ---

_ATTEMPTS = 10


def is_there(table: Table, batch: Batch) -> bool:
    version = table.properties.get(_property(batch))
    return version is not None and int(version) >= batch.version


def commit(
    catalog: Catalog, options: IcebergOptions, locations: list[str], batch: Batch | None, *, overwrite: bool
) -> None:
    """Does nothing if the table has the batch already."""
    backoff = Backoff()
    for _ in range(_ATTEMPTS):
        table = catalog.load_table(options.identifier)
        if batch is not None and is_there(table, batch):
            return
        try:
            _commit_once(table, locations, batch, overwrite=overwrite)
        except CommitFailedException as error:
            rejection = error
            sleep(backoff.next_s())
        else:
            return
    raise ArianeError(
        f"table {options.table} was changed by others during each of {_ATTEMPTS} commits, and does not have this "
        "batch: run it again, or let fewer programs write at the same time"
    ) from rejection


def _commit_once(table: Table, locations: list[str], batch: Batch | None, *, overwrite: bool) -> None:
    """Without pyiceberg's own retries: they would commit to the new state of the table without checking for the
    batch."""
    without_retries = {**table.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    table.metadata = table.metadata.model_copy(
        update={"properties": without_retries}
    )  # only this copy, not the catalog
    with table.transaction() as transaction:
        if overwrite and any(True for _ in table.scan().plan_files()):
            transaction.delete(AlwaysTrue())
        if locations:
            transaction.add_files(locations, check_duplicate_files=False)  # their names are random
        if batch is not None:
            transaction.set_properties({_property(batch): str(batch.version)})


def _property(batch: Batch) -> str:
    return f"ariane.txn.{batch.app_id}"


# --- the table ---


@dataclass(frozen=True)
class IcebergLakeTable:
    options: IcebergOptions
    catalog: CatalogConfig
    overwrite: bool
    schema: pa.Schema
    """The schema of the files: the table's columns with their ids, by which readers find renamed columns."""
    location: str
    properties: dict[str, str]

    @classmethod
    def opened(
        cls, options: IcebergOptions, config: CatalogConfig, schema: StructType, *, overwrite: bool
    ) -> "IcebergLakeTable":
        """A new table allows nulls in all columns, as Spark's own do: queries differ in what they declare NOT NULL."""
        rows = to_arrow_schema(schema.toNullable(), timezone="UTC")
        with config.opened() as catalog:
            table = open_table(catalog, options, rows)
        return cls(options, config, overwrite, schema_to_pyarrow(table.schema()), table.location(), table.properties)

    def has_batch(self, batch: Batch) -> bool:
        with self.catalog.opened() as catalog:
            return is_there(catalog.load_table(self.options.identifier), batch)

    def write(self, batches: Iterable[pa.RecordBatch]) -> WrittenFile | None:
        """The properties of the table say where its files are."""
        provider = load_location_provider(self.location, self.properties)
        location = provider.new_data_location(f"{uuid.uuid4()}.{self.options.compression}.parquet")
        rows = (batch.select(self.schema.names).cast(self.schema) for batch in batches)
        return write_file(location, local_path(self.options, location), rows, self.options.compression)

    def commit(self, files: list[WrittenFile], batch: Batch | None) -> None:
        if files or self.overwrite:
            locations = [file.location for file in files]
            with self.catalog.opened() as catalog:
                commit(catalog, self.options, locations, batch, overwrite=self.overwrite)
