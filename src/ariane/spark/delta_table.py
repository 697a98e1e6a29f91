"""One commit of a Delta table for each batch, with the batch's number in it: the table itself knows what it has."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from ariane.errors import SettingsError
from ariane.spark.delta_files import WrittenFile, remove_files

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import TableNotFoundError
    from deltalake.transaction import AddAction, create_table_with_add_actions
except ImportError as error:
    raise SettingsError('the sink to Delta tables needs deltalake: pip install "ariane[spark,delta]"') from error


@dataclass(frozen=True)
class Batch:
    """Whose it is, and its number, which grows."""

    app_id: str
    version: int


def has_batch(root: Path, batch: Batch | None) -> bool:
    table = _open(root)
    return table is not None and batch is not None and _is_there(table, batch)


def check_table(root: Path, schema: pa.Schema) -> None:
    """SettingsError when rows of this schema do not fit the table that is there."""
    table = _open(root)
    if table is None:
        return
    if table.metadata().partition_columns:
        columns = ", ".join(table.metadata().partition_columns)
        raise SettingsError(f"table {root} is partitioned by {columns}, which this sink does not write: use another")
    has, gets = _types(table.schema()), _types(Schema.from_arrow(schema))
    if has != gets:
        wrong = sorted({name for name, kind in has.items() ^ gets.items()})
        raise SettingsError(
            f"columns {', '.join(wrong)} of the data frame do not fit table {root}: select what the table has, "
            f"{', '.join(f'{name} {kind}' for name, kind in has.items())}"
        )


def commit(root: Path, schema: pa.Schema, files: list[WrittenFile], batch: Batch | None, *, overwrite: bool) -> None:
    """Nothing, when the table has the batch; the files are then of no use."""
    if has_batch(root, batch):
        remove_files(root, files)
        return
    adds = [AddAction(one.name, one.size, {}, one.written_ms, True, one.statistics) for one in files]
    transactions = [] if batch is None else [Transaction(batch.app_id, batch.version)]
    properties = CommitProperties(app_transactions=transactions)
    mode: Literal["overwrite", "append"] = "overwrite" if overwrite else "append"
    table = _open(root)
    if table is None:
        create_table_with_add_actions(
            str(root), Schema.from_arrow(schema), adds, mode=mode, commit_properties=properties
        )
    else:
        table.create_write_transaction([*adds], mode, Schema.from_arrow(schema), commit_properties=properties)


def _open(root: Path) -> DeltaTable | None:
    try:
        return DeltaTable(str(root))
    except TableNotFoundError:
        return None


def _is_there(table: DeltaTable, batch: Batch) -> bool:
    version = table.transaction_version(batch.app_id)
    return version is not None and version >= batch.version


def _types(schema: Schema) -> dict[str, str]:
    return {field.name: field.type.to_json() for field in schema.fields}
