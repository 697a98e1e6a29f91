"""The names of the topics that a broker had: what is in the log beside them was deleted."""

from pathlib import Path

from ariane.store.config.table_file import read_config
from ariane.store.disk import Disk

FILE_NAME = "topics.json"


def known_topics(disk: Disk, config: Path) -> frozenset[str] | None:
    """The topics of `config`/topics.json, or of its copy. None if neither is intact or has a topic: nothing is known.

    Neither a damaged table nor an old one is used: a topic that is not in it would be deleted.
    """
    table = read_config(disk, config / FILE_NAME)
    topics = table.get("topicConfigTable") if isinstance(table, dict) else None
    return frozenset(topics) if isinstance(topics, dict) and topics else None
