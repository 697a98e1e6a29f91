"""The columns of a read: chosen by option, by the user's schema, or the usual ones; and the same in Spark's words.

Where a column has a value in every row, Spark is promised so. Its reader of Python sources, and the projection behind
it, then do not ask of each value whether it is there, which takes a tenth of what a short row costs.
"""

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ariane.arrow.schema import COLUMNS, MAY_BE_NULL, message_schema
from ariane.errors import RecordError, SettingsError
from ariane.spark.options.read import BodyFormat, ReadOptions


@dataclass(frozen=True, slots=True)
class Columns:
    """`names` in their order; `json` is the user's schema when bodies are to be taken apart, else None."""

    names: tuple[str, ...]
    json: StructType | None = None
    promised: frozenset[str] = frozenset()
    """Those that Spark was told are never null."""

    @property
    def arrow(self) -> pa.Schema:
        return _promising(message_schema(list(self.names)), self.promised)


def keep_promise(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with the schema that Spark believes: where it allows no null there is none."""
    for field, column in zip(schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise RecordError(
                f"column {field.name} is null in {column.null_count} rows, and the schema says that it never is: "
                f"leave out its NOT NULL, or give .schema(...) in which {field.name} may be null"
            )
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def spark_schema(options: ReadOptions) -> StructType:
    """What `load()` without a schema gives."""
    if options.format is BodyFormat.JSON:
        raise SettingsError(
            'format=json needs to know the fields of the bodies: give them with .schema("id BIGINT, name STRING"), or '
            "let inferSchema=true look at some"
        )
    chosen = message_schema(options.column_list, include_properties=options.include_properties)
    return from_arrow_schema(_promising(chosen, COLUMNS.keys() - MAY_BE_NULL))


def columns_of(options: ReadOptions, schema: StructType) -> Columns:
    """The columns that Spark asks for, by the schema it has settled on."""
    if options.format is BodyFormat.JSON:
        return Columns((), schema)
    names = tuple(schema.fieldNames())
    ours = from_arrow_schema(message_schema(names))
    for field in schema.fields:
        if field.dataType != ours[field.name].dataType:
            raise SettingsError(
                f"column {field.name} is {ours[field.name].dataType.simpleString()}, and the schema given says "
                f"{field.dataType.simpleString()}: correct it, or use .select(...) to convert"
            )
    return Columns(names, promised=frozenset(field.name for field in schema.fields if not field.nullable))


def _promising(schema: pa.Schema, never_null: Collection[str]) -> pa.Schema:
    return pa.schema([field.with_nullable(field.name not in never_null) for field in schema])
