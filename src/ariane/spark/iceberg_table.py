"""An Iceberg table to write to: what tasks need to know of it travels with them, and their files have its field ids."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.locations import load_location_provider
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ariane.spark.iceberg_catalog import CatalogPlace
from ariane.spark.iceberg_commits import commit, is_there
from ariane.spark.iceberg_opening import local_path, open_table
from ariane.spark.iceberg_options import IcebergOptions
from ariane.spark.lake_files import WrittenFile, write_file
from ariane.spark.lake_options import Batch


@dataclass(frozen=True)
class IcebergLakeTable:
    options: IcebergOptions
    place: CatalogPlace
    overwrite: bool
    schema: pa.Schema
    """Of its files: the table's columns with their ids, by which readers know them whatever they are renamed to."""
    location: str
    properties: dict[str, str]

    @classmethod
    def opened(
        cls, options: IcebergOptions, place: CatalogPlace, schema: StructType, *, overwrite: bool
    ) -> "IcebergLakeTable":
        """A new table takes nulls in all columns, as Spark's own do: one query knows more of them than the next."""
        rows = to_arrow_schema(schema.toNullable(), timezone="UTC")
        with place.opened() as catalog:
            table = open_table(catalog, options, rows)
        return cls(options, place, overwrite, schema_to_pyarrow(table.schema()), table.location(), table.properties)

    def has_batch(self, batch: Batch) -> bool:
        with self.place.opened() as catalog:
            return is_there(catalog.load_table(self.options.identifier), batch)

    def write(self, batches: Iterable[pa.RecordBatch]) -> WrittenFile | None:
        """Where the table's own properties put its files."""
        places = load_location_provider(self.location, self.properties)
        location = places.new_data_location(f"{uuid.uuid4()}.{self.options.compression}.parquet")
        rows = (batch.select(self.schema.names).cast(self.schema) for batch in batches)
        return write_file(location, local_path(self.options, location), rows, self.options.compression)

    def commit(self, files: list[WrittenFile], batch: Batch | None) -> None:
        if files or self.overwrite:
            locations = [file.location for file in files]
            with self.place.opened() as catalog:
                commit(catalog, self.options, locations, batch, overwrite=self.overwrite)
