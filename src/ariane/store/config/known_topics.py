"""The names of the topics that a broker had: what is in the log beside them was deleted."""

from pathlib import Path

from ariane.store.config.table_file import backup_of, read_copy
from ariane.store.disk import Disk

FILE_NAME = "topics.json"


def known_topics(disk: Disk, config: Path) -> frozenset[str] | None:
    """The topics of `config`/topics.json, or of its copy. None if neither is intact or has a topic: nothing is known.

    A damaged table is not used: a flipped bit in a name would delete the messages of a topic.
    """
    copies = (read_copy(disk, path) for path in (config / FILE_NAME, backup_of(config / FILE_NAME)))
    table = next((copy.value for copy in copies if copy.is_usable), None)
    topics = table.get("topicConfigTable") if isinstance(table, dict) else None
    return frozenset(topics) if isinstance(topics, dict) and topics else None
