"""Requests that are not supported, with the reason: for responses, documentation and tests.

Every member of RequestCode is declared in REQUESTS or has its reason in UNDECLARED, never both. Every declared request
has a handler at each of its servers, or a reason in UNSERVED.
"""

from ariane.wire.codes import RequestCode

UNSERVED: dict[RequestCode, str] = {
    RequestCode.UPDATE_NAMESRV_CONFIG: (
        "this request let every peer write any file (CVE-2023-37582), so it is refused: "
        "change the settings file and restart the nameserver"
    ),
}
"""Declared requests that a server refuses."""

_NEVER_SERVED = "a constant without a handler in every 4.x release: no client sends it"
_FILTER_SERVER = "filter servers ran code that clients uploaded; Apache replaced them by SQL92 filters in 4.3"
_ONLY_5 = "5.x only: no client or tool of 4.x sends it"
_POP = "5.x only: pop consumption, used by groups that an administrator switched to it"
_TIMER = "5.x only: inspection and recall of messages with an arbitrary delivery time"
_STATIC_TOPIC = "5.x only: static topics, whose queues are mapped to brokers"
_CONTROLLER = "5.x only: the controller that elects masters"
_REPLICATION = "5.x only: coordination between the brokers of one name"
_ROCKSDB = "5.x only: consume queues in RocksDB"
_COLD_DATA = "5.x only: throttling of reads from old files"
_AUTH = "5.x only: the second access control; 4.x has accounts and white lists"

_C = RequestCode

_BY_REASON: dict[str, tuple[RequestCode, ...]] = {
    _NEVER_SERVED: (
        _C.QUERY_BROKER_OFFSET, _C.GET_TOPIC_CONFIG_LIST, _C.GET_TOPIC_NAME_LIST, _C.TRIGGER_DELETE_FILES,
        _C.SUSPEND_CONSUMER, _C.RESUME_CONSUMER, _C.RESET_CONSUMER_OFFSET_IN_CONSUMER,
        _C.RESET_CONSUMER_OFFSET_IN_BROKER, _C.ADJUST_CONSUMER_THREAD_POOL, _C.WHO_CONSUME_THE_MESSAGE,
    ),
    _FILTER_SERVER: (_C.REGISTER_FILTER_SERVER, _C.REGISTER_MESSAGE_FILTER_CLASS),
    _ONLY_5: (
        _C.UPDATE_AND_CREATE_TOPIC_LIST, _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, _C.GET_CLIENT_CONFIG,
        _C.REGISTER_TOPIC_IN_NAMESRV, _C.QUERY_TOPICS_BY_CONSUMER, _C.QUERY_SUBSCRIPTION_BY_CONSUMER,
        _C.UPDATE_AND_GET_GROUP_FORBIDDEN,
    ),
    _POP: (
        _C.QUERY_ASSIGNMENT, _C.SET_MESSAGE_REQUEST_MODE, _C.GET_ALL_MESSAGE_REQUEST_MODE, _C.POP_MESSAGE,
        _C.ACK_MESSAGE, _C.PEEK_MESSAGE, _C.CHANGE_MESSAGE_INVISIBLETIME, _C.NOTIFICATION, _C.POLLING_INFO,
        _C.POP_ROLLBACK, _C.BATCH_ACK_MESSAGE,
    ),
    _TIMER: (_C.GET_TIMER_METRICS, _C.RECALL_MESSAGE),
    _STATIC_TOPIC: (_C.UPDATE_AND_CREATE_STATIC_TOPIC,),
    _CONTROLLER: (
        _C.CONTROLLER_ALTER_SYNC_STATE_SET, _C.CONTROLLER_ELECT_MASTER, _C.CONTROLLER_REGISTER_BROKER,
        _C.CONTROLLER_GET_REPLICA_INFO, _C.CONTROLLER_GET_METADATA_INFO, _C.CONTROLLER_GET_SYNC_STATE_DATA,
        _C.GET_BROKER_EPOCH_CACHE, _C.NOTIFY_BROKER_ROLE_CHANGED, _C.UPDATE_CONTROLLER_CONFIG,
        _C.GET_CONTROLLER_CONFIG, _C.CLEAN_BROKER_DATA, _C.CONTROLLER_GET_NEXT_BROKER_ID,
        _C.CONTROLLER_APPLY_BROKER_ID, _C.BROKER_CLOSE_CHANNEL_REQUEST, _C.CHECK_NOT_ACTIVE_BROKER_REQUEST,
        _C.GET_BROKER_LIVE_INFO_REQUEST, _C.GET_SYNC_STATE_DATA_REQUEST, _C.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
    ),
    _REPLICATION: (
        _C.GET_BROKER_MEMBER_GROUP, _C.ADD_BROKER, _C.REMOVE_BROKER, _C.NOTIFY_MIN_BROKER_ID_CHANGE,
        _C.EXCHANGE_BROKER_HA_INFO, _C.RESET_MASTER_FLUSH_OFFSET,
    ),
    _ROCKSDB: (_C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, _C.EXPORT_ROCKSDB_CONFIG_TO_JSON),
    _COLD_DATA: (
        _C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, _C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, _C.GET_COLD_DATA_FLOW_CTR_INFO,
        _C.SET_COMMITLOG_READ_MODE,
    ),
    _AUTH: (
        _C.AUTH_CREATE_USER, _C.AUTH_UPDATE_USER, _C.AUTH_DELETE_USER, _C.AUTH_GET_USER, _C.AUTH_LIST_USER,
        _C.AUTH_CREATE_ACL, _C.AUTH_UPDATE_ACL, _C.AUTH_DELETE_ACL, _C.AUTH_GET_ACL, _C.AUTH_LIST_ACL,
    ),
}  # fmt: skip

UNDECLARED: dict[RequestCode, str] = {code: reason for reason, codes in _BY_REASON.items() for code in codes}
"""Codes without a struct: a server responds with REQUEST_CODE_NOT_SUPPORTED."""
