"""An Iceberg table by its name, made when it is missing, and refused when this sink cannot write it."""

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import PyArrowFileIO, UnsupportedPyArrowTypeException
from pyiceberg.table import Table

from ariane.errors import SettingsError
from ariane.spark.iceberg_options import IcebergOptions
from ariane.spark.iceberg_schema import check_columns

_VERSION_MAX = 2


def open_table(catalog: Catalog, options: IcebergOptions, schema: pa.Schema) -> Table:
    """SettingsError when rows of this schema cannot be written there."""
    try:
        table = catalog.load_table(options.identifier)
    except NoSuchTableError:
        table = _made(catalog, options, schema)
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
            f"table {options.table} is partitioned by {columns}, which this sink does not write: use another"
        )
    check_columns(table, str(options.table), schema)
    return table


def local_path(options: IcebergOptions, location: str) -> Path:
    """SettingsError when it is not in a directory, or in one that each process would look for somewhere else."""
    scheme, _, path = PyArrowFileIO.parse_location(location)
    if scheme != "file" or not (location.startswith("file:") or Path(location).is_absolute()):
        raise SettingsError(
            f"table {options.table} is at {location[:200]}: this sink writes to directories that the driver and every "
            "executor see under the same path, such as catalog.warehouse=/data/lake"
        )
    return Path(path)


def _made(catalog: Catalog, options: IcebergOptions, schema: pa.Schema) -> Table:
    """Looked at before it is made, so that no table is left where it would be refused. Only its namespace may be."""
    catalog.create_namespace_if_not_exists(options.identifier[:-1])
    try:
        staged = catalog.create_table_transaction(options.identifier, schema)
    except UnsupportedPyArrowTypeException as error:
        raise SettingsError(
            f"column {error.field.name} cannot be in an Iceberg table, which knows no {error.field.type}: cast it to "
            "another type, or leave it out"
        ) from error
    except ValueError as error:  # columns without a type, namespaces within namespaces
        raise SettingsError(
            f"table {options.table} cannot be made ({error}): change the data frame or the name, or make the table "
            "yourself"
        ) from error
    local_path(options, staged.table_metadata.location)
    try:
        return staged.commit_transaction()
    except (CommitFailedException, TableAlreadyExistsError):  # somebody else has just made it
        return catalog.load_table(options.identifier)
