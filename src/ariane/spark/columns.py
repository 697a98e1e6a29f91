"""The columns of a read: chosen by option, by the user's schema, or the usual ones; and the same in Spark's words."""

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ariane.arrow.schema import message_schema
from ariane.errors import SettingsError
from ariane.spark.read_options import BodyFormat, ReadOptions


@dataclass(frozen=True, slots=True)
class Columns:
    """`names` in their order; `json` is the user's schema when bodies are to be taken apart, else None."""

    names: tuple[str, ...]
    json: StructType | None = None

    @property
    def arrow(self) -> pa.Schema:
        return message_schema(list(self.names), include_properties=False)


def spark_schema(options: ReadOptions) -> StructType:
    """What `load()` without a schema gives."""
    if options.format is BodyFormat.JSON:
        raise SettingsError(
            'format=json needs to know the fields of the bodies: give them with .schema("id BIGINT, name STRING"), or '
            "let inferSchema=true look at some"
        )
    return from_arrow_schema(_chosen(options))


def columns_of(options: ReadOptions, schema: StructType) -> Columns:
    """The columns that Spark asks for, by the schema it has settled on."""
    if options.format is BodyFormat.JSON:
        return Columns((), schema)
    names = tuple(schema.fieldNames())
    ours = from_arrow_schema(_checked(list(names), include_properties=False))
    for field in schema.fields:
        if field.dataType != ours[field.name].dataType:
            raise SettingsError(
                f"column {field.name} is {ours[field.name].dataType.simpleString()}, and the schema given says "
                f"{field.dataType.simpleString()}: correct it, or use .select(...) to convert"
            )
    return Columns(names)


def _chosen(options: ReadOptions) -> pa.Schema:
    return _checked(options.column_list, include_properties=options.include_properties)


def _checked(names: list[str] | None, *, include_properties: bool) -> pa.Schema:
    return message_schema(names, include_properties=include_properties)
