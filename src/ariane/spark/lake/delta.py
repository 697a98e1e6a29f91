"""Delta tables: one commit for each batch, with the batch number in it, so the table itself records what it has."""

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ariane.errors import SettingsError
from ariane.spark.lake.base import WrittenFile, write_file
from ariane.spark.options.lake import Batch, DeltaOptions

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import TableNotFoundError
    from deltalake.transaction import AddAction, create_table_with_add_actions
except ImportError as error:
    raise SettingsError('the sink to Delta tables needs deltalake: pip install "ariane[spark,delta]"') from error


@dataclass(frozen=True)
class DeltaLakeTable:
    options: DeltaOptions
    schema: pa.Schema
    overwrite: bool = False

    @classmethod
    def opened(cls, options: DeltaOptions, schema: StructType, *, overwrite: bool) -> "DeltaLakeTable":
        """A new table allows nulls in all columns, as Spark's own do: queries differ in what they declare NOT NULL."""
        columns = [field.with_nullable(True) for field in to_arrow_schema(schema, timezone="UTC")]
        table = cls(options, pa.schema(columns), overwrite)
        if not overwrite:
            table.check()
        return table

    def check(self) -> None:
        """SettingsError when rows of this schema do not fit the existing table."""
        root, table = self.options.root, _open(self.options.root)
        if table is None:
            return
        if table.metadata().partition_columns:
            columns = ", ".join(table.metadata().partition_columns)
            raise SettingsError(
                f"table {root} is partitioned by {columns}, which this sink does not support: use another table"
            )
        existing, written = _types(table.schema()), _types(Schema.from_arrow(self.schema))
        if existing != written:
            different = sorted({name for name, kind in existing.items() ^ written.items()})
            raise SettingsError(
                f"columns {', '.join(different)} of the data frame do not fit table {root}: select what the table has, "
                f"{', '.join(f'{name} {kind}' for name, kind in existing.items())}"
            )

    def has_batch(self, batch: Batch) -> bool:
        table = _open(self.options.root)
        version = None if table is None else table.transaction_version(batch.app_id)
        return version is not None and version >= batch.version

    def write(self, batches: Iterable[pa.RecordBatch]) -> WrittenFile | None:
        name = f"part-{uuid.uuid4()}.{self.options.compression}.parquet"
        return write_file(name, self.options.root / name, batches, self.options.compression)

    def commit(self, files: list[WrittenFile], batch: Batch | None) -> None:
        if batch is not None and (self.has_batch(batch) or not (files or self.overwrite)):
            return
        adds = [_added(file) for file in files]
        transactions = [] if batch is None else [Transaction(batch.app_id, batch.version)]
        properties = CommitProperties(app_transactions=transactions)
        mode: Literal["overwrite", "append"] = "overwrite" if self.overwrite else "append"
        table, schema = _open(self.options.root), Schema.from_arrow(self.schema)
        if table is None:
            create_table_with_add_actions(str(self.options.root), schema, adds, mode=mode, commit_properties=properties)
        else:
            table.create_write_transaction([*adds], mode, schema, commit_properties=properties)


def _open(root: Path) -> DeltaTable | None:
    try:
        return DeltaTable(str(root))
    except TableNotFoundError:
        return None


def _added(file: WrittenFile) -> AddAction:
    return AddAction(file.location, file.size, {}, file.written_ms, True, json.dumps({"numRecords": file.rows}))


def _types(schema: Schema) -> dict[str, str]:
    return {field.name: field.type.to_json() for field in schema.fields}
