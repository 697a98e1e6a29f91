"""Accepts the tables under `config/` as an operator left them: edited by hand, removed, or lost.

edited by hand          the table gets a new checksum, and so does its copy
topics.json is lost     it is written again from the queues that are there: names and numbers, not permissions
another one is lost     it is forgotten, and the broker begins with an empty one
"""

from collections.abc import Iterator
from pathlib import Path

from ariane.model.topic import DataVersion, TopicConfig
from ariane.store.config.table_file import (
    CHECKSUM_FIELD,
    LIST_NAME,
    CopyState,
    backup_of,
    listed_tables,
    read_copy,
    save_config,
    write_list,
)
from ariane.store.config.truncation_request import FILE_NAME as TRUNCATION
from ariane.store.consume_queue.scan import list_queues
from ariane.store.disk import Disk
from ariane.store.layout import Layout
from ariane.store.lock import locked
from ariane.wire.json import fastjson
from ariane.wire.requests.topics import TopicTable

TOPICS = "topics.json"


def accept_config(disk: Disk, layout: Layout, now_ms: int) -> list[str]:
    """Takes the store's lock; returns one line for each table that was accepted or could not be."""
    with locked(layout.lock):
        return [*_accept(disk, layout, now_ms)]


def _accept(disk: Disk, layout: Layout, now_ms: int) -> Iterator[str]:
    directory = layout.config
    listed = listed_tables(disk, directory)
    present = {name for name in disk.names(directory) if name.endswith(".json")}
    for name in sorted({*listed, *present, TOPICS} - {LIST_NAME, TRUNCATION}):
        path = directory / name
        table, copy = read_copy(disk, path), read_copy(disk, backup_of(path))
        if table.state is CopyState.DAMAGED:
            if isinstance(table.value, dict):
                yield _accept_edited(disk, path, table.value)
            elif copy.is_usable:
                yield f"{name}: {table.problem}; not accepted, a broker uses its copy {copy.path.name}"
            else:
                yield f"{name}: {table.problem}; not accepted: restore it, or remove it and {copy.path.name}"
        elif table.state is copy.state is CopyState.MISSING:
            if name == TOPICS and (topics := _topics_of_queues(disk, layout)):
                save_config(disk, path, TopicTable(DataVersion(timestamp=now_ms, counter=1), topics).to_bytes())
                yield f"{name}: written from the queues, {len(topics)} topics: check numbers of queues and permissions"
            elif name in listed:
                write_list(disk, directory, [other for other in listed_tables(disk, directory) if other != name])
                yield f"{name}: forgotten, a broker begins with an empty table"


def _accept_edited(disk: Disk, path: Path, table: dict[object, object]) -> str:
    table.pop(CHECKSUM_FIELD, None)
    save_config(disk, path, fastjson.emit(table))
    return f"{path.name}: accepted as it is, with a new checksum"


def _topics_of_queues(disk: Disk, layout: Layout) -> dict[str, TopicConfig]:
    """Every topic that has a queue, with as many queues as there are."""
    counts: dict[str, int] = {}
    for queue in list_queues(disk, layout.consume_queues):
        counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
    return {
        topic: TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
        for topic, count in counts.items()
    }
