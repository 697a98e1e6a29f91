"""From the keys of a group, as they were read, to a Snapshot. MetaRecordInvalid when one is not what it says."""

from ariane.errors import MetaRecordInvalid
from ariane.replication.group.events import Present, Snapshot
from ariane.replication.meta import Reading
from ariane.replication.record import GroupKeys, GroupRecord, MemberRecord, Order


def snapshot_of(reading: Reading, keys: GroupKeys) -> Snapshot:
    record, record_revision, order = None, 0, None
    members: dict[int, Present] = {}
    for kv in reading.keys:
        if kv.key == keys.state:
            record, record_revision = GroupRecord.from_bytes(kv.value), kv.mod_revision
        elif kv.key == keys.order:
            order = Order.from_bytes(kv.value)
        elif kv.key.startswith(keys.members):
            member = MemberRecord.from_bytes(kv.value)
            if kv.key != keys.member(member.id):
                raise MetaRecordInvalid(f"{kv.key} has the record of member {member.id}")
            members[member.id] = Present(member, kv.create_revision, kv.lease)
    return Snapshot(reading.revision, record, record_revision, members, order)
