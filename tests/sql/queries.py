"""Runs a query over topics of a broker or over stores in this process, and keeps its output."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ariane.client.settings import ClientSettings
from ariane.sql.catalog import ClusterCatalog, StoreCatalog
from ariane.sql.duckdb_engine import run_duckdb_query
from ariane.sql.tables import Catalog, ScanFilter


@dataclass(frozen=True)
class QueryOutput:
    rows: list[dict[str, Any]]
    columns: list[str]
    sentences: list[str]

    @property
    def value(self) -> Any:
        """Of the only column of the only row."""
        ((value,),) = [row.values() for row in self.rows]
        return value


def run_query(sql: str, catalog: Catalog) -> QueryOutput:
    with run_duckdb_query(sql, catalog) as response:
        rows = list(response.rows)
        return QueryOutput(rows, list(response.columns), response.sentences())


def cluster(namesrv: str, **options: Any) -> ClusterCatalog:
    return ClusterCatalog(ClientSettings(nameservers=namesrv), ScanFilter(**options))


def stores(*roots: Path, **options: Any) -> StoreCatalog:
    return StoreCatalog(roots, ScanFilter(**options))
