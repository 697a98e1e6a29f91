"""Nameserver settings, and the RocketMQ keys that have no effect, each with the reason."""

from dataclasses import dataclass, field
from pathlib import Path

from ariane.settings import Key, setting
from ariane.transport.settings import TlsSettings, TransportSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NameserverSettings:
    host: str = setting(
        "127.0.0.1",
        key="bindAddress",
        doc="Address to listen on; 0.0.0.0 or :: for all interfaces. Apache's default is 0.0.0.0; ours is this machine"
        " only, because without access control a nameserver trusts every peer. Another address needs aclEnable or"
        " insecure.",
    )
    insecure: bool = setting(
        False,
        key="insecure",
        doc="Listen beyond the loopback address without access control. The log says so every hour.",
    )
    port: int = setting(
        9876,
        key="listenPort",
        minimum=0,
        maximum=65_535,
        doc="Port to listen on. 0 chooses a free one, which the ready line shows.",
    )
    acl_enable: bool = setting(
        False,
        key="aclEnable",
        doc="Require signatures for all that changes the cluster: registrations of brokers, permissions, key-value "
        "pairs, deletions of topics. Routes and lists stay open, so that clients need no account here. Apache's "
        "nameserver has no access control.",
    )
    acl_require_v2: bool = setting(
        False, key="aclRequireV2", doc="Refuse Apache's signatures, which can be replayed, as at the broker."
    )
    acl_file: Path = setting(
        Path("conf/plain_acl.yml"),
        key="rocketmq.acl.plain.file",
        doc="File with accounts and white lists, in the format of the broker's, with the key `brokers` for accounts of "
        "brokers.",
    )
    kv_config_path: Path | None = setting(
        None,
        key="kvConfigPath",
        doc="JSON file that persists the KV configuration (ordered topics); its format is Apache's. "
        "Unset: in memory only, so that trying Ariane out leaves no files behind. Apache's default is "
        "~/namesrv/kvConfig.json.",
    )
    order_message_enable: bool = setting(
        False,
        key="orderMessageEnable",
        doc="Send clients the ordered-topic configuration with each route.",
    )
    return_order_conf: bool = setting(
        True,
        key="returnOrderTopicConfigToBroker",
        doc="Send brokers the ordered-topic configuration when they register.",
    )
    broker_expiry_s: float = setting(
        120.0,
        minimum=1,
        maximum=86_400,
        doc="A broker that has not registered for this long is dropped: four of its registration periods, as in "
        "Apache.",
    )
    scan_interval_s: float = setting(
        10.0,
        key=Key("scanNotActiveBrokerInterval", per_unit=1000),
        minimum=0.01,
        maximum=3600,
        doc="Interval of the scan for expired brokers. A broker whose connection closes is dropped immediately, "
        "without the scan. RocketMQ's key is in milliseconds.",
    )
    first_scan_delay_s: float = setting(
        5.0,
        minimum=0,
        maximum=3600,
        doc="Time from the start to the first scan for expired brokers.",
    )
    print_interval_s: float = setting(
        600.0,
        minimum=1,
        maximum=86_400,
        doc="Interval at which the KV configuration is logged, at level DEBUG.",
    )
    topics_max: int = setting(
        100_000,
        minimum=1,
        maximum=10_000_000,
        doc="Most topics in the route table. More are refused: anyone can register, so memory must be bounded.",
    )
    brokers_max: int = setting(
        10_000,
        minimum=1,
        maximum=1_000_000,
        doc="Most broker addresses in the route table. More are refused, for the same reason.",
    )
    transport: TransportSettings = field(default_factory=TransportSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)


# Every other key of Apache's NamesrvConfig, NettyServerConfig, NettyClientConfig, ControllerConfig and TlsSystemConfig,
# from 4.0 to 5.3, by the reason why it has no effect here.
_UNSUPPORTED_BY_REASON = {
    "Ariane needs no installation directory": "rocketmqHome",
    "settings are never written back to a file, and no request can name one": "configStorePath",
    "no setting of a nameserver can be changed at run time": "configBlackList",
    "looking up unknown topics in another environment is not supported": "productEnvName clusterTest",
    "one event loop serves all connections, there are no thread pools to size": """
        clientRequestThreadPoolNums defaultThreadPoolNums serverWorkerThreads serverCallbackExecutorThreads
        serverSelectorThreads serverNettyWorkerGroupEnable""",
    "the event loop always uses the best selector of the system": "useEpollNativeSelector",
    "transport.in_flight_max and transport.write_buffer_bytes_max are the limits instead": """
        clientRequestThreadPoolQueueCapacity defaultThreadPoolQueueCapacity serverOnewaySemaphoreValue
        serverAsyncSemaphoreValue""",
    "reading resumes at a quarter of writeBufferHighWaterMark": "writeBufferLowWaterMark",
    "the kernel sizes socket buffers automatically, and better than a fixed value": """
        serverSocketSndBufSize serverSocketRcvBufSize""",
    "Python and the kernel manage this memory": "serverPooledByteBufAllocatorEnable",
    "every shutdown is graceful, see transport.drain_timeout_s": "enableShutdownGracefully shutdownWaitTimeSeconds",
    "a broker is unregistered immediately, not through a queue": "unRegisterBrokerQueueCapacity",
    "slaves do not act as masters": """
        supportActingMaster notifyMinBrokerIdChanged notifyMinBrokerIdChangeTimeoutMillis""",
    "topic lists are always answered": "enableAllTopicList enableTopicList",
    "routes are answered from the first registration on": "needWaitForService waitSecondsForService",
    "a registration adds and changes topics and never deletes one": "deleteTopicWithBrokerRegistration",
    "a client certificate is always verified when it is requested": "tls.server.authClient",
    "a certificate is never generated: set tls.server.certPath": "tls.test.mode.enable",
    "write the tls.server.* keys into this file": "tls.config.file",
    "a nameserver opens no connections of its own": """
        clientWorkerThreads clientCallbackExecutorThreads clientOnewaySemaphoreValue clientAsyncSemaphoreValue
        connectTimeoutMillis channelNotActiveInterval scanAvailableNameSrv isScanAvailableNameSrv
        clientChannelMaxIdleTimeSeconds clientSocketSndBufSize clientSocketRcvBufSize
        clientPooledByteBufAllocatorEnable clientCloseSocketIfTimeout useTLS socksProxyConfig disableCallbackExecutor
        disableNettyWorkerGroup maxReconnectIntervalTimeSeconds enableReconnectForGoAway enableTransparentRetry
        tls.enable tls.client.keyPath tls.client.keyPassword tls.client.certPath tls.client.authServer
        tls.client.trustCertPath""",
    "there is no controller inside the nameserver": """
        enableControllerInNamesrv controllerType controllerThreadPoolNums controllerRequestThreadPoolQueueCapacity
        controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId controllerStorePath mappedFileSize
        electMasterMaxRetryCount enableElectUncleanMaster processReadEvent isProcessReadEvent notifyBrokerRoleChanged
        scanInactiveMasterInterval jRaftElectionTimeoutMs jRaftScanWaitTimeoutMs jRaftSnapshotIntervalSecs jRaftGroupId
        jRaftServerId jRaftInitConf jRaftControllerRPCAddr metricsExporterType metricsGrpcExporterTarget
        metricsGrpcExporterHeader metricGrpcExporterTimeOutInMills metricGrpcExporterIntervalInMills
        metricLoggingExporterIntervalInMills metricsPromExporterPort metricsPromExporterHost metricsLabel
        metricsInDelta""",
}

UNSUPPORTED: dict[str, str] = {key: reason for reason, keys in _UNSUPPORTED_BY_REASON.items() for key in keys.split()}
"""RocketMQ keys that are accepted in a `namesrv.conf` with a warning, and the reason that the warning gives."""
