"""One commit for each batch, which adds its files and sets a property of the table to the batch's number.

Properties, unlike snapshots, do not expire: the table knows for ever what it has. A catalog takes a commit only if the
table's branch is where the commit began. So of two writers of one batch one is refused, and finds the property when it
looks again.
"""

from time import sleep

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table, TableProperties

from ariane.errors import ArianeError
from ariane.lifecycle import Backoff
from ariane.spark.iceberg_options import IcebergOptions
from ariane.spark.lake_options import Batch

_ATTEMPTS = 10


def is_there(table: Table, batch: Batch) -> bool:
    version = table.properties.get(_property(batch))
    return version is not None and int(version) >= batch.version


def commit(
    catalog: Catalog, options: IcebergOptions, locations: list[str], batch: Batch | None, *, overwrite: bool
) -> None:
    """Nothing, when the table has the batch already."""
    backoff = Backoff()
    for _ in range(_ATTEMPTS):
        table = catalog.load_table(options.identifier)
        if batch is not None and is_there(table, batch):
            return
        try:
            _commit_once(table, locations, batch, overwrite=overwrite)
        except CommitFailedException as error:
            refused = error
            sleep(backoff.next_s())
        else:
            return
    raise ArianeError(
        f"table {options.table} was changed by others during each of {_ATTEMPTS} commits, and has nothing of this "
        "batch: run it again, or let fewer programs write at a time"
    ) from refused


def _commit_once(table: Table, locations: list[str], batch: Batch | None, *, overwrite: bool) -> None:
    """pyiceberg would try again by itself, on the new state of the table, and never look whether this has the batch."""
    unrepeated = {**table.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": unrepeated})  # only here: the catalog has its own
    with table.transaction() as transaction:
        if overwrite and any(True for _ in table.scan().plan_files()):
            transaction.delete(AlwaysTrue())
        if locations:
            transaction.add_files(locations, check_duplicate_files=False)  # their names are drawn by chance
        if batch is not None:
            transaction.set_properties({_property(batch): str(batch.version)})


def _property(batch: Batch) -> str:
    return f"ariane.txn.{batch.app_id}"
