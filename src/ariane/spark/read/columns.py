"""The columns of a read, selected by option, by the user's schema or by default, and their Spark schema.

A column that has a value in every row is declared `nullable = false`. Spark's reader of Python sources, and the
projection behind it, then do not check each value for null, which is a tenth of the cost of a short row.
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
    """`names` in their order; `json` is the user's schema when bodies are parsed as JSON, else None."""

    names: tuple[str, ...]
    json: StructType | None = None
    not_null: frozenset[str] = frozenset()
    """Those that Spark's schema declares NOT NULL."""

    @property
    def arrow(self) -> pa.Schema:
        return _with_nullability(message_schema(list(self.names)), self.not_null)


def check_nulls(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with Spark's schema; RecordError if a column that it declares NOT NULL has a null."""
    for field, column in zip(schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise RecordError(
                f"column {field.name} is null in {column.null_count} rows, and the schema says NOT NULL: "
                f"leave out NOT NULL, or give a .schema(...) in which {field.name} may be null"
            )
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def spark_schema(options: ReadOptions) -> StructType:
    """The schema of a `load()` without one."""
    if options.format is BodyFormat.JSON:
        raise SettingsError(
            'format=json needs the fields of the bodies: give them with .schema("id BIGINT, name STRING"), or '
            "set inferSchema=true to take them from a sample"
        )
    columns = message_schema(options.column_list, include_properties=options.include_properties)
    return from_arrow_schema(_with_nullability(columns, COLUMNS.keys() - MAY_BE_NULL))


def columns_of(options: ReadOptions, schema: StructType) -> Columns:
    """The columns of the schema that Spark uses."""
    if options.format is BodyFormat.JSON:
        return Columns((), schema)
    names = tuple(schema.fieldNames())
    actual = from_arrow_schema(message_schema(names))
    for field in schema.fields:
        if field.dataType != actual[field.name].dataType:
            raise SettingsError(
                f"column {field.name} is {actual[field.name].dataType.simpleString()}, and the schema given says "
                f"{field.dataType.simpleString()}: correct it, or use .select(...) to convert"
            )
    return Columns(names, not_null=frozenset(field.name for field in schema.fields if not field.nullable))


def _with_nullability(schema: pa.Schema, not_null: Collection[str]) -> pa.Schema:
    return pa.schema([field.with_nullable(field.name not in not_null) for field in schema])
