"""What a nameserver can be told, and the RocketMQ keys it knows but does not use."""

from dataclasses import dataclass, field
from pathlib import Path

from ariane.settings import Key, setting
from ariane.transport.settings import TlsSettings, TransportSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NameserverSettings:
    host: str = setting(
        "127.0.0.1",
        key="bindAddress",
        doc="Address to listen on; 0.0.0.0 or :: for every one. Apache's default is 0.0.0.0; ours is this machine"
        " only, because a nameserver believes whoever reaches it.",
    )
    port: int = setting(
        9876,
        key="listenPort",
        minimum=0,
        maximum=65_535,
        doc="Port to listen on. 0 takes a free one, which the ready line tells.",
    )
    kv_config_path: Path | None = setting(
        None,
        key="kvConfigPath",
        doc="JSON file that keeps the KV configuration (ordered topics) over a restart; its format is Apache's. "
        "Unset: in memory only, because trying Ariane out should leave no files behind. Apache's default is "
        "~/namesrv/kvConfig.json.",
    )
    order_message_enable: bool = setting(
        False,
        key="orderMessageEnable",
        doc="Tell clients the ordered-topic configuration with each route.",
    )
    return_order_conf: bool = setting(
        True,
        key="returnOrderTopicConfigToBroker",
        doc="Tell brokers the ordered-topic configuration when they register.",
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
        doc="Time between two searches for expired brokers. A lost connection drops its broker at once, without "
        "them. RocketMQ's key counts milliseconds.",
    )
    first_scan_delay_s: float = setting(
        5.0,
        minimum=0,
        maximum=3600,
        doc="Time from the start to the first search for expired brokers.",
    )
    print_interval_s: float = setting(
        600.0,
        minimum=1,
        maximum=86_400,
        doc="Time between two log entries that sum up the KV configuration.",
    )
    topics_max: int = setting(
        100_000,
        minimum=1,
        maximum=10_000_000,
        doc="Most topics in the route table. More are refused: registration needs no password, memory is not endless.",
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
# from 4.0 to 5.3, by the reason why a nameserver of ours has no use for it.
_UNSUPPORTED_BY_REASON = {
    "Ariane needs no installation directory": "rocketmqHome",
    "settings are never written back to a file, and no request can name one": "configStorePath",
    "what may change at run time is an allow-list, which needs no black list": "configBlackList",
    "a nameserver that asks another environment for unknown topics is not built": "productEnvName clusterTest",
    "one event loop serves all connections, there are no thread pools to size": """
        clientRequestThreadPoolNums defaultThreadPoolNums serverWorkerThreads serverCallbackExecutorThreads
        serverSelectorThreads serverNettyWorkerGroupEnable""",
    "the event loop always uses the best selector of the system": "useEpollNativeSelector",
    "transport.in_flight_max and transport.write_buffer_bytes_max bound what may wait": """
        clientRequestThreadPoolQueueCapacity defaultThreadPoolQueueCapacity serverOnewaySemaphoreValue
        serverAsyncSemaphoreValue""",
    "reading goes on at a quarter of writeBufferHighWaterMark": "writeBufferLowWaterMark",
    "the kernel sizes socket buffers by itself, and better than a fixed value": """
        serverSocketSndBufSize serverSocketRcvBufSize""",
    "Python and the kernel manage this memory": "serverPooledByteBufAllocatorEnable",
    "every stop is graceful, see transport.drain_timeout_s": "enableShutdownGracefully shutdownWaitTimeSeconds",
    "a broker is unregistered when it asks, not through a queue": "unRegisterBrokerQueueCapacity",
    "slaves do not act as masters": """
        supportActingMaster notifyMinBrokerIdChanged notifyMinBrokerIdChangeTimeoutMillis""",
    "topic lists are always answered": "enableAllTopicList enableTopicList",
    "routes are answered from the first registration on": "needWaitForService waitSecondsForService",
    "a registration adds and changes topics and never deletes one": "deleteTopicWithBrokerRegistration",
    "a client certificate that is asked for is always verified": "tls.server.authClient",
    "a certificate is never made up: give tls.server.certPath": "tls.test.mode.enable",
    "write the tls.server.* keys into this file": "tls.config.file",
    "a nameserver makes no calls of its own": """
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
"""RocketMQ keys that are accepted in a `namesrv.conf` with a warning, and the reason it gives."""
