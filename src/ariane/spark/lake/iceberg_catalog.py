"""Opens Iceberg catalogs, and removes secrets from their errors."""

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
"""Properties that hold no secret, and are often the cause of an error."""

_PASSWORD = re.compile(r"://[^:@/]*:(.+)@")


@dataclass(frozen=True)
class CatalogConfig:
    name: str
    properties: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, name: str, options: Mapping[str, str]) -> "CatalogConfig":
        """With pyiceberg's own configuration of this machine, so that executors need no configuration file."""
        return cls(name, {**_OWN, **(Config().get_catalog_config(name) or {}), **options})

    @contextmanager
    def opened(self) -> Iterator[Catalog]:
        """Errors within are raised without secrets."""
        with self._load() as catalog:
            try:
                yield catalog
                return
            except Exception as error:
                if self._without_secrets(str(error)) == str(error):
                    raise
                text = self._text(error)
        raise ArianeError(f"catalog {self.name} says {text}") from None

    def _load(self) -> Catalog:
        try:
            return load_catalog(self.name, **self.properties)
        except Exception as error:
            # The type depends on the library of the catalog, and the text, or that of the cause, may hold an address
            # with a password. So neither is passed on as it is.
            text = self._text(error)
        raise SettingsError(
            f"catalog {self.name} cannot be opened ({text}): check the options catalog.uri, catalog.warehouse and "
            f"catalog.type, or what pyiceberg's configuration says of {self.name}"
        )

    def _text(self, error: Exception) -> str:
        return f"{type(error).__name__}: {self._without_secrets(str(error))}"

    def _without_secrets(self, text: str) -> str:
        """Replaces the value of each option by the option's name."""
        for name, value in sorted(_leaves(self.properties), key=lambda leaf: len(leaf[1]), reverse=True):
            if value and name not in _PLAIN:
                text = text.replace(value, f"<catalog.{name}>")
        return text


def _leaves(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Values by name, and passwords within addresses."""
    for name, value in properties.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
            continue
        yield prefix + name, str(value)
        for password in _PASSWORD.findall(str(value)):
            yield from ((prefix + name, password), (prefix + name, unquote(password)))
