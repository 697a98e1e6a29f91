"""Admin request about replication: who follows this master, or whom this slave follows.

The response has the fields of RocketMQ 5.x, so that its `mqadmin haStatus` prints it, and more for Ariane's own tools.
"""

from dataclasses import dataclass

from ariane.broker.settings import BrokerSettings
from ariane.replication.master import LostSlave, Master, SlaveStatus
from ariane.replication.metadata import MetadataSync
from ariane.replication.role import Replication
from ariane.replication.slave import Slave
from ariane.rpc.handlers import Call, handles
from ariane.wire.requests.replication import (
    GetHaStatus,
    HaStatus,
    HaStatusResponse,
    LostConnection,
    MasterConnection,
    SlaveConnection,
)


@dataclass(frozen=True)
class ReplicationHandlers:
    settings: BrokerSettings
    replication: Replication

    @handles(GetHaStatus)
    def status(self, request: GetHaStatus, call: Call) -> HaStatusResponse:
        master, slave = self.replication.master, self.replication.slave
        role = str(self.settings.role)
        if master is not None:
            return HaStatusResponse(body=_of_master(master, role))
        if slave is not None:
            return HaStatusResponse(body=_of_slave(slave, self.replication.metadata, role))
        return HaStatusResponse(body=HaStatus(broker_role=role))


def _of_master(master: Master, role: str) -> HaStatus:
    slaves = master.slaves()
    return HaStatus(
        master=True,
        master_commit_log_max_offset=master.source.end,
        in_sync_slave_nums=sum(slave.is_in_sync for slave in slaves),
        ha_connection_info=list(map(_connection, slaves)),
        broker_role=role,
        lost_connections=list(map(_lost, master.lost())),
    )


def _connection(slave: SlaveStatus) -> SlaveConnection:
    return SlaveConnection(
        addr=slave.address,
        slave_ack_offset=slave.acknowledged,
        diff=slave.behind_bytes,
        in_sync=slave.is_in_sync,
        transferred_byte_in_second=slave.bytes_per_s,
        transfer_from_where=slave.sent_to,
        broker_id=slave.member,
        connected_timestamp=slave.connected_ms,
        dispatched_offset=slave.dispatched,
        behind_millis=_millis(slave.behind_s),
    )


def _lost(lost: LostSlave) -> LostConnection:
    return LostConnection(
        addr=lost.address,
        broker_id=lost.member,
        lost_timestamp=lost.lost_ms,
        reason=lost.reason,
        slave_ack_offset=lost.acknowledged,
        behind_millis=_millis(lost.behind_s),
    )


def _of_slave(slave: Slave, metadata: MetadataSync | None, role: str) -> HaStatus:
    status = slave.status
    connection = MasterConnection(
        master_addr=status.master,
        transferred_byte_in_second=status.bytes_per_s,
        max_offset=status.end,
        last_read_timestamp=status.received_ms,
        last_write_timestamp=status.reported_ms,
        connected_timestamp=None if status.master is None else status.connected_ms,
        dispatched_offset=status.dispatched,
        behind_bytes=status.behind_bytes,
        behind_millis=_millis(status.behind_s),
        reason=status.reason,
        metadata_timestamp=None if metadata is None else metadata.synced_ms,
        metadata_failure=None if metadata is None else metadata.failure,
    )
    return HaStatus(ha_client_runtime_info=connection, broker_role=role)


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
