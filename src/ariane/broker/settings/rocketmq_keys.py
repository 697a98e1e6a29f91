"""RocketMQ keys that the broker recognises but does not use: each causes a warning, and a `broker.conf` works as is.

Every key of Apache's BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig, AuthConfig and
TlsSystemConfig from 4.0 to 5.3 is either a setting or listed here (or in store/settings.py) with the reason.
"""

from ariane.store.settings import UNSUPPORTED as UNSUPPORTED_BY_STORE

_BY_REASON = {
    "Ariane needs no installation directory": "rocketmqHome",
    "settings are never written to a file, and no request can name one": """
        brokerConfigPath configName configStorePath""",
    "only an allow-list of settings can change at run time, so a black list is not needed": "configBlackList",
    "one event loop serves all connections, so there are no thread pools to configure": """
        sendMessageThreadPoolNums putMessageFutureThreadPoolNums pullMessageThreadPoolNums
        litePullMessageThreadPoolNums ackMessageThreadPoolNums processReplyMessageThreadPoolNums
        queryMessageThreadPoolNums adminBrokerThreadPoolNums clientManageThreadPoolNums consumerManageThreadPoolNums
        loadBalanceProcessorThreadPoolNums heartbeatThreadPoolNums recoverThreadPoolNums endTransactionThreadPoolNums
        serverWorkerThreads serverCallbackExecutorThreads serverSelectorThreads serverNettyWorkerGroupEnable
        clientWorkerThreads clientCallbackExecutorThreads disableCallbackExecutor disableNettyWorkerGroup
        topicQueueLockNum enableFastChannelEventProcess asyncSendEnable""",
    "transport.in_flight_max and transport.write_buffer_bytes_max limit waiting requests": """
        sendThreadPoolQueueCapacity putThreadPoolQueueCapacity pullThreadPoolQueueCapacity
        litePullThreadPoolQueueCapacity ackThreadPoolQueueCapacity replyThreadPoolQueueCapacity
        queryThreadPoolQueueCapacity clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity
        heartbeatThreadPoolQueueCapacity endTransactionPoolQueueCapacity adminBrokerThreadPoolQueueCapacity
        loadBalanceThreadPoolQueueCapacity serverOnewaySemaphoreValue serverAsyncSemaphoreValue
        clientOnewaySemaphoreValue clientAsyncSemaphoreValue maxAsyncPutMessageRequests""",
    "requests do not wait in queues before they are handled": """
        waitTimeMillsInPullQueue waitTimeMillsInLitePullQueue waitTimeMillsInHeartbeatQueue
        waitTimeMillsInTransactionQueue waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue""",
    "an overloaded broker always rejects requests immediately": "brokerFastFailureEnable enableNetWorkFlowControl",
    "the event loop always uses the best selector of the system": "useEpollNativeSelector",
    "reading resumes at a quarter of writeBufferHighWaterMark": "writeBufferLowWaterMark",
    "the kernel sizes socket buffers automatically, which is better than a fixed value": """
        serverSocketSndBufSize serverSocketRcvBufSize clientSocketSndBufSize clientSocketRcvBufSize""",
    "Python and the kernel manage this memory": """
        serverPooledByteBufAllocatorEnable clientPooledByteBufAllocatorEnable transferMsgByHeap""",
    "every stop is graceful, see transport.drain_timeout_s": "enableShutdownGracefully shutdownWaitTimeSeconds",
    "a requested client certificate is always verified": "tls.server.authClient",
    "the broker never generates a certificate: set tls.server.certPath": "tls.test.mode.enable",
    "write the tls.server.* keys into this file": "tls.config.file",
    "a broker connects to its nameservers without TLS": """
        useTLS tls.enable tls.client.keyPath tls.client.keyPassword tls.client.certPath tls.client.authServer
        tls.client.trustCertPath socksProxyConfig""",
    "transport.connect_timeout_s and registerNameServerPeriod control the connections to nameservers": """
        connectTimeoutMillis channelNotActiveInterval clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
        scanAvailableNameSrv isScanAvailableNameSrv maxReconnectIntervalTimeSeconds enableReconnectForGoAway
        enableTransparentRetry sendHeartbeatTimeoutMillis brokerHeartbeatInterval compatibleWithOldNameSrv""",
    "nameservers are configured by namesrvAddr, never fetched from an address server": """
        fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
        updateNameServerAddrPeriod""",
    "a registration always contains the whole topic table": """
        enableSingleTopicRegister enableSplitRegistration splitRegistrationSize""",
    "the replication port is listenPort + 1, as in Apache 4; replication.port changes it": "haListenPort",
    "replication is that of 4.x: one slave that has a message is enough": """
        haMaxGapNotInSync haFlowControlEnable maxHaTransferByteInSecond haMaxTimeSlaveNotCatchup
        maxSlaveResendLength syncFromLastFile asyncLearner totalReplicas inSyncReplicas
        minInSyncReplicas allAckInSyncStateSet enableAutoInSyncReplicas syncMasterFlushOffsetWhenStartup
        storePathEpochFile storePathBrokerIdentity replicasPerDiskPartition""",
    "DLedger is not implemented; Ariane will have its own replication": """
        enableDLegerCommitLog dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId enableBatchPush isEnableBatchPush
        storePathDLedgerCommitLog""",
    "slaves do not act as masters": """
        enableSlaveActingMaster enableRemoteEscape skipPreOnline brokerNotActiveTimeoutMillis forwardTimeout
        syncBrokerMemberGroupPeriod cleanOfflineBrokerInterval lockInStrictMode""",
    "there is no controller": """
        enableControllerMode controllerAddr fetchControllerAddrByDnsLookup syncBrokerMetadataPeriod
        checkSyncStateSetPeriod syncControllerMetadataPeriod controllerHeartBeatTimeoutMills brokerElectionPriority""",
    "a process is one broker": "isBrokerContainer isInBrokerContainer isolateLogEnable",
    "plug-ins of Java code cannot be loaded": "messageStorePlugIn",
    "filter servers ran code uploaded by clients; SQL92 filters replaced them": "filterServerNums",
    "SQL92 filters are evaluated for each message, without bitmaps in the queues": """
        enableCalcFilterBitMap expectConsumerNumUseFilter maxErrorRateOfBloomFilter filterDataCleanTimeSpan
        maxFilterMessageSize""",
    "pop consumption is a feature of 5.x": """
        popPollingSize popPollingMapSize popPollingMapExpireTimeSeconds maxPopPollingSize reviveQueueNum reviveInterval
        reviveMaxSlow reviveScanTime enableSkipLongAwaitingAck reviveAckWaitMs enablePopLog enablePopBufferMerge
        popCkStayBufferTime popCkStayBufferTimeOut popCkMaxBufferSize popCkOffsetMaxQueueSize enablePopBatchAck
        popLongPollingForceNotifyInterval enableNotifyBeforePopCalculateLag enableNotifyAfterPopOrderLockRelease
        initPopOffsetByCheckMsgInMem retrieveMessageFromPopRetryTopicV1 enableRetryTopicV2 popFromRetryProbability
        popConsumerFSServiceInit popConsumerKVServiceLog popConsumerKVServiceInit popConsumerKVServiceEnable
        popReviveMaxReturnSizePerRead popReviveMaxAttemptTimes popResponseReturnActualRetryTopic
        popInflightMessageThreshold enablePopMessageThreshold skipWhenCKRePutReachMaxTimes appendAckAsync appendCkAsync
        serverLoadBalancerEnable serverLoadBalancerEnabled loadBalancePollNameServerInterval defaultMessageRequestMode
        defaultPopShareQueueNum useStaticSubscription""",
    "pulls of lite consumers are handled like other pulls": "litePullMessageEnable rejectPullConsumerEnable",
    "slow consumers show as lag and are not disconnected": """
        disableConsumeIfConsumerReadSlowly consumerFallbehindThreshold""",
    "a pull returns as much as Apache's defaults allow": "pullBatchMaxMessageCount travelCqFileNumWhenGetMessage",
    "a query returns at most 64 messages": "defaultQueryMaxNum",
    "clients expire after 120 s without a heartbeat, and leave when their connection closes": """
        channelExpiredTimeout subscriptionExpiredTimeout printChannelGroups printChannelGroupsMinNum
        enableRegisterProducer""",
    "members of a group are notified of changes immediately": "realTimeNotifyConsumerChange",
    "offsets are stored as clients commit them; broadcasting consumers store their own": """
        enableBroadcastOffsetStore broadcastOffsetExpireSecond broadcastOffsetExpireMaxSecond
        flushConsumerOffsetHistoryInterval consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep
        useServerSideResetOffset enableCleanExpiredOffset""",
    "lag is counted, not estimated": "estimateAccumulation",
    "system topics and groups are always protected": "validateSystemTopicWhenUpdateTopic enableCreateSysGroup",
    "deleting a topic keeps the retry topics of its groups, which are shared": "clearRetryTopicWhenDeleteTopic",
    "each transaction is decided individually": """
        transactionOpMsgMaxSize transactionOpBatchInterval transactionMetricFlushInterval""",
    "delivery times are stored in Ariane's own files, which have no such parameters": """
        mappedFileSizeTimerLog timerPrecisionMs timerRollWindowSlot timerFlushIntervalMs timerGetMessageThreadNum
        timerPutMessageThreadNum timerEnableDisruptor timerEnableCheckMetrics timerInterceptDelayLevel
        timerStopEnqueue timerCheckMetricsWhen timerSkipUnknownError timerWarmEnable timerStopDequeue
        timerEnableRetryUntilSuccess timerCongestNumEachSlot timerMetricSmallThreshold timerProgressLogIntervalMs
        disappearTimeAfterStart""",
    "recalling a delayed message is a feature of 5.x": "allowRecallWhenBrokerNotWriteable recallMessageEnable",
    "delayed messages are delivered in order of their due time, one at a time": """
        enableScheduleMessageStats enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit
        scheduleAsyncDeliverMaxResendNum2Blocked""",
    "every topic accepts every kind of message, as in 4.x": "enableMixedMessageType",
    "light message queues are a feature of 5.x": "enableLmq enableMultiDispatch maxLmqConsumeQueueNum enableLmqStats",
    "compacted topics are a feature of 5.x": """
        compactionMappedFileSize compactionCqMappedFileSize compactionScheduleInternal maxOffsetMapSize
        compactionThreadNum enableCompaction""",
    "reads of old files are not throttled; a thread does them": """
        coldCtrStrategyEnable usePIDColdCtrStrategy cgColdReadThreshold globalColdReadThreshold
        coldDataFlowControlEnable coldDataScanEnable dataReadAheadEnable timerColdDataCheckIntervalMs
        accessMessageInMemoryHotRatio""",
    "consume queues and tables are files, never RocksDB": """
        storeType cleanRocksDBDirtyCQIntervalMin statRocksDBCQIntervalSec memTableFlushInterval memTableFlushIntervalMs
        realTimePersistRocksDBConfig enableRocksDBLog rocksdbCQDoubleWriteEnable batchWriteKvCqSize
        combineCQLoadingCQTypes combineCQPreferCQType combineAssignOffsetCQType combineCQEnableCheckSelf
        combineCQMaxExtraSearchCommitLogFiles bottomMostCompressionTypeForConsumeQueueStore rocksdbCompressionType
        rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold transferMetadataJsonToRocksdb
        transferOffsetJsonToRocksdb configManagerVersion enableSplitMetadata splitMetadataSize""",
    "the commit log is one directory": "readOnlyCommitLogStorePaths",
    "the log is mapped for reading only, and unmapped after its last reader": """
        mappedFileSwapEnable commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval cleanSwapedMapInterval logicQueueSwapMapReserveFileNum
        writeWithoutMmap putConsumeQueueDataByFileChannel""",
    "the append itself updates queues and index, so there is no dispatch to configure": """
        dispatchCqThreads dispatchCqCacheNum enableAsyncReput recheckReputOffsetFromCq dispatchFromSenderThread
        enableBuildConsumeQueueConcurrently batchDispatchRequestThreadPoolNums readUnCommitted maxConsumeQueueScan
        sampleCountThreshold sampleSteps""",
    "batch consume queues are a feature of 5.x": "mapperFileSizeBatchConsumeQueue searchBcqByCacheEnable",
    "one event loop appends, so there is no lock to configure": "useABSLock spinLockCollisionRetreatOptimalDegree",
    "an append succeeds or fails immediately": "putMessageTimeout wakeCommitWhenPutMessage wakeFlushWhenPutMessage",
    "recovery reads everything after the checkpoint, and always verifies it": """
        maxRecoveryCommitlogFiles maxChecksumRange recoverConcurrently enableAcceleratedRecovery
        enableLogConsumeQueueRepeatedlyBuildWhenRecover enableRunningFlagsInFlush
        forceVerifyPropCRC correctLogicMinOffsetSleepInterval correctLogicMinOffsetForceInterval""",
    "name lengths are limited by the protocol": "maxTopicLength autoMessageVersionOnTopicLen",
    "one clean-up pass removes at most ten files": """
        deleteFileBatchMax maxBatchDeleteFilesNum logicalDiskSpaceCleanForciblyThreshold""",
    "thread priorities are left to the kernel": "highSpeedMode",
    "there is no billing": """
        commercialEnable commercialTimerCount commercialTransCount commercialBigCount commercialBaseCount
        commercialSizePerMsg accountStatsEnable accountStatsPrintZeroValues""",
    "topics and groups always have statistics": "enableDetailStat autoDeleteUnusedStats maxStatsIdleTimeInMinutes",
    "no release reads this key": "maxDelayTime",
    "metrics have the Prometheus format, all of them or none: see metricsExporterType": """
        metricsGrpcExporterTarget metricsGrpcExporterHeader metricGrpcExporterTimeOutInMills
        metricGrpcExporterIntervalInMills metricLoggingExporterIntervalInMills metricsLabel metricsInDelta
        enableRemotingMetrics
        enableMessageStoreMetrics enablePopMetrics enableConnectionMetrics enableTransactionMetrics enableStatsMetrics
        enableRequestMetrics enableLagAndDlqMetrics""",
    "access control is ACL 1.0 of 4.x, with accounts and white lists: see aclEnable": """
        clusterName authConfigPath authenticationEnabled authenticationProvider authenticationMetadataProvider
        authenticationStrategy authenticationWhitelist initAuthenticationUser innerClientAuthenticationCredentials
        authorizationEnabled authorizationProvider authorizationMetadataProvider authorizationStrategy
        authorizationWhitelist migrateAuthFromV1Enabled userCacheMaxNum userCacheExpiredSecond userCacheRefreshSecond
        aclCacheMaxNum aclCacheExpiredSecond aclCacheRefreshSecond statefulAuthenticationCacheMaxNum
        statefulAuthenticationCacheExpiredSecond statefulAuthorizationCacheMaxNum
        statefulAuthorizationCacheExpiredSecond""",
}

UNSUPPORTED: dict[str, str] = {
    **{key: reason for reason, keys in _BY_REASON.items() for key in keys.split()},
    **UNSUPPORTED_BY_STORE,
}
