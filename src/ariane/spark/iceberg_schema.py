"""Whether rows fit an Iceberg table: by the names and types of columns, told in the table's words."""

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from ariane.errors import SettingsError


def check_columns(table: Table, name: str, schema: pa.Schema) -> None:
    """SettingsError when the columns differ. Their order may, and so may whether they can be null: that is for rows."""
    has, gets = _kinds(schema_to_pyarrow(table.schema())), _kinds(schema)
    if has != gets:
        wrong = sorted({column for column, _ in has.items() ^ gets.items()})
        columns = ", ".join(f"{field.name} {field.field_type}" for field in table.schema().fields)
        raise SettingsError(
            f"columns {', '.join(wrong)} of the data frame do not fit table {name}: select what the table has, "
            f"{columns}"
        )


def _kinds(schema: pa.Schema) -> dict[str, object]:
    return {field.name: _kind(field.type) for field in schema}


def _kind(type_: pa.DataType) -> object:
    """Equal for Arrow types that Iceberg has one type for: it knows no small numbers, and no large texts."""
    if pa.types.is_struct(type_):
        return tuple((field.name, _kind(field.type)) for field in type_)
    if pa.types.is_map(type_):
        return "map", _kind(type_.key_type), _kind(type_.item_type)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return "list", _kind(type_.value_type)
    if pa.types.is_int8(type_) or pa.types.is_int16(type_):
        return "int32"
    return str(type_).removeprefix("large_")
