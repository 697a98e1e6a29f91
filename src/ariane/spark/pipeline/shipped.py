"""The pipelines that come with Ariane, and the file that a name or a path on the command line means."""

from pathlib import Path

from ariane.errors import SettingsError
from ariane.spark.pipeline.mistakes import nearest

DIRECTORY = Path(__file__).parents[1] / "pipelines"


def shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(DIRECTORY.glob("*.yaml"))}


def find(name: str) -> tuple[Path, str]:
    """The file, and what to call it in messages. A path has a suffix or a slash; anything else is a name."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.parent != Path():
        return path, name
    known = shipped()
    if name not in known:
        raise SettingsError(
            f"there is no pipeline {name}: {nearest(name, known)}, or give a file such as ./{name}.yaml"
        )
    return known[name], f"{name}.yaml"
