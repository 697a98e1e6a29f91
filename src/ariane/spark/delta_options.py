"""What the sink to Delta tables can be told."""

from dataclasses import dataclass
from pathlib import Path

from ariane.errors import SettingsError
from ariane.settings import setting
from ariane.spark.lake_options import LakeOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOptions(LakeOptions):
    path: str | None = setting(
        None, key="path", doc="The table's directory, which the driver and every executor can write to."
    )

    def __post_init__(self) -> None:
        LakeOptions.__post_init__(self)
        if self.path is None:
            raise SettingsError("no table is given: add the option path, or .save(path), or .start(path)")
        if "://" in self.path:
            raise SettingsError(
                f"path {self.path[:200]} is an address: give a directory, such as /data/orders, that the driver and "
                "every executor can write to"
            )

    @property
    def root(self) -> Path:
        assert self.path is not None, "checked when it was made"
        return Path(self.path).absolute()
