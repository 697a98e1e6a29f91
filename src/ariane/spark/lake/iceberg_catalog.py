"""Catalogs of Iceberg tables: how to reach one, and errors of a catalog without its secrets."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ariane.errors import ArianeError, SettingsError

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.utils.config import Config
except ImportError as error:
    raise SettingsError('the sink to Iceberg tables needs pyiceberg: pip install "ariane[spark,iceberg]"') from error

_OWN = {"py-io-impl": "ariane.spark.lake.iceberg_io.SyncedFileIO"}
_PLAIN = frozenset({"type", "warehouse", "py-catalog-impl", "py-io-impl"})
"""Properties that hold no secret, and are the point of many a message."""

_PASSWORD = re.compile(r"://[^:@/]*:(.+)@")


@dataclass(frozen=True)
class CatalogPlace:
    name: str
    properties: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, name: str, given: Mapping[str, str]) -> "CatalogPlace":
        """With what pyiceberg's configuration says here: a file of the driver's that no executor needs to have."""
        return cls(name, {**_OWN, **(Config().get_catalog_config(name) or {}), **given})

    @contextmanager
    def opened(self) -> Iterator[Catalog]:
        """Whatever goes wrong with it is told without its secrets."""
        with self._load() as catalog:
            try:
                yield catalog
                return
            except Exception as error:
                if self._without_secrets(str(error)) == str(error):
                    raise
                told = self._told(error)
        raise ArianeError(f"catalog {self.name} says {told}") from None

    def _load(self) -> Catalog:
        try:
            return load_catalog(self.name, **self.properties)
        except Exception as error:
            # Of any type, by the library of whichever catalog it is; and its words, or the cause's, may hold an
            # address with a password. So neither is handed on as it is.
            told = self._told(error)
        raise SettingsError(
            f"catalog {self.name} cannot be opened ({told}): check the options catalog.uri, catalog.warehouse and "
            f"catalog.type, or what pyiceberg's configuration says of {self.name}"
        )

    def _told(self, error: Exception) -> str:
        return f"{type(error).__name__}: {self._without_secrets(str(error))}"

    def _without_secrets(self, told: str) -> str:
        """Values are shown as the names of their options."""
        for name, text in sorted(_leaves(self.properties), key=lambda leaf: len(leaf[1]), reverse=True):
            if text and name not in _PLAIN:
                told = told.replace(text, f"<catalog.{name}>")
        return told


def _leaves(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Values by name, and passwords within addresses."""
    for name, value in properties.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
            continue
        yield prefix + name, str(value)
        for password in _PASSWORD.findall(str(value)):
            yield from ((prefix + name, password), (prefix + name, unquote(password)))
