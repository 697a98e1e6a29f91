"""The RocketMQ keys that a broker knows but does not use: a warning each, so that a `broker.conf` works as it is.

Every key of Apache's BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig, AuthConfig and
TlsSystemConfig from 4.0 to 5.3 is a setting of ours or stands here (or with the store's own) with the reason.
"""

from ariane.store.settings import UNSUPPORTED as UNSUPPORTED_BY_STORE

_BY_REASON = {
    "Ariane needs no installation directory": "rocketmqHome",
    "settings are never written back to a file, and no request can name one": """
        brokerConfigPath configName configStorePath""",
    "what may change at run time is an allow-list, which needs no black list": "configBlackList",
    "one event loop serves all connections, there are no thread pools to size": """
        sendMessageThreadPoolNums putMessageFutureThreadPoolNums pullMessageThreadPoolNums
        litePullMessageThreadPoolNums ackMessageThreadPoolNums processReplyMessageThreadPoolNums
        queryMessageThreadPoolNums adminBrokerThreadPoolNums clientManageThreadPoolNums consumerManageThreadPoolNums
        loadBalanceProcessorThreadPoolNums heartbeatThreadPoolNums recoverThreadPoolNums endTransactionThreadPoolNums
        serverWorkerThreads serverCallbackExecutorThreads serverSelectorThreads serverNettyWorkerGroupEnable
        clientWorkerThreads clientCallbackExecutorThreads disableCallbackExecutor disableNettyWorkerGroup
        topicQueueLockNum enableFastChannelEventProcess asyncSendEnable""",
    "transport.in_flight_max and transport.write_buffer_bytes_max bound what may wait": """
        sendThreadPoolQueueCapacity putThreadPoolQueueCapacity pullThreadPoolQueueCapacity
        litePullThreadPoolQueueCapacity ackThreadPoolQueueCapacity replyThreadPoolQueueCapacity
        queryThreadPoolQueueCapacity clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity
        heartbeatThreadPoolQueueCapacity endTransactionPoolQueueCapacity adminBrokerThreadPoolQueueCapacity
        loadBalanceThreadPoolQueueCapacity serverOnewaySemaphoreValue serverAsyncSemaphoreValue
        clientOnewaySemaphoreValue clientAsyncSemaphoreValue maxAsyncPutMessageRequests""",
    "requests do not wait in queues before they are handled": """
        waitTimeMillsInPullQueue waitTimeMillsInLitePullQueue waitTimeMillsInHeartbeatQueue
        waitTimeMillsInTransactionQueue waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue""",
    "a broker under pressure always refuses at once": "brokerFastFailureEnable enableNetWorkFlowControl",
    "the event loop always uses the best selector of the system": "useEpollNativeSelector",
    "reading goes on at a quarter of writeBufferHighWaterMark": "writeBufferLowWaterMark",
    "the kernel sizes socket buffers by itself, and better than a fixed value": """
        serverSocketSndBufSize serverSocketRcvBufSize clientSocketSndBufSize clientSocketRcvBufSize""",
    "Python and the kernel manage this memory": """
        serverPooledByteBufAllocatorEnable clientPooledByteBufAllocatorEnable transferMsgByHeap""",
    "every stop is graceful, see transport.drain_timeout_s": "enableShutdownGracefully shutdownWaitTimeSeconds",
    "a client certificate that is asked for is always verified": "tls.server.authClient",
    "a certificate is never made up: give tls.server.certPath": "tls.test.mode.enable",
    "write the tls.server.* keys into this file": "tls.config.file",
    "a broker reaches its nameservers in plain text": """
        useTLS tls.enable tls.client.keyPath tls.client.keyPassword tls.client.certPath tls.client.authServer
        tls.client.trustCertPath socksProxyConfig""",
    "connections to nameservers live by transport.connect_timeout_s and registerNameServerPeriod": """
        connectTimeoutMillis channelNotActiveInterval clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
        scanAvailableNameSrv isScanAvailableNameSrv maxReconnectIntervalTimeSeconds enableReconnectForGoAway
        enableTransparentRetry sendHeartbeatTimeoutMillis brokerHeartbeatInterval compatibleWithOldNameSrv""",
    "nameservers are given by namesrvAddr, never fetched from a server of addresses": """
        fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
        updateNameServerAddrPeriod""",
    "a registration always holds the whole topic table": """
        enableSingleTopicRegister enableSplitRegistration splitRegistrationSize""",
    "replication is not built yet": """
        brokerIP2 haListenPort haSendHeartbeatInterval haHousekeepingInterval haTransferBatchSize haMasterAddress
        haSlaveFallbehindMax haMaxGapNotInSync haFlowControlEnable maxHaTransferByteInSecond haMaxTimeSlaveNotCatchup
        slaveTimeout offsetCheckInSlave maxSlaveResendLength syncFromLastFile asyncLearner totalReplicas inSyncReplicas
        minInSyncReplicas allAckInSyncStateSet enableAutoInSyncReplicas syncMasterFlushOffsetWhenStartup
        storePathEpochFile storePathBrokerIdentity replicasPerDiskPartition""",
    "DLedger is not built; replication will be Ariane's own": """
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
    "filter servers ran code that clients uploaded; SQL92 filters took their place": "filterServerNums",
    "SQL92 filters are evaluated for each message, without bit maps in the queues": """
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
    "pulls of lite consumers are pulls like all others": "litePullMessageEnable rejectPullConsumerEnable",
    "reading slowly is told by the lag, and nobody is cut off for it": """
        disableConsumeIfConsumerReadSlowly consumerFallbehindThreshold""",
    "a pull answers as much as Apache's defaults allow": "pullBatchMaxMessageCount travelCqFileNumWhenGetMessage",
    "a query returns at most 64 messages": "defaultQueryMaxNum",
    "clients expire after 120 s without a heartbeat, and leave when their connection closes": """
        channelExpiredTimeout subscriptionExpiredTimeout printChannelGroups printChannelGroupsMinNum
        enableRegisterProducer""",
    "groups are told of changes as they happen": "realTimeNotifyConsumerChange",
    "offsets are kept as clients report them, for consumers that broadcast by themselves": """
        enableBroadcastOffsetStore broadcastOffsetExpireSecond broadcastOffsetExpireMaxSecond
        flushConsumerOffsetHistoryInterval consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep
        useServerSideResetOffset enableCleanExpiredOffset""",
    "a lag is counted, not estimated": "estimateAccumulation",
    "system topics and groups are always protected": "validateSystemTopicWhenUpdateTopic enableCreateSysGroup",
    "deleting a topic leaves the retry topics of its groups, which they share": "clearRetryTopicWhenDeleteTopic",
    "one message of a transaction is decided at a time": """
        transactionOpMsgMaxSize transactionOpBatchInterval transactionMetricFlushInterval""",
    "delivery times are kept in the store's own files, which have no wheel to tune": """
        mappedFileSizeTimerLog timerPrecisionMs timerRollWindowSlot timerFlushIntervalMs timerGetMessageThreadNum
        timerPutMessageThreadNum timerEnableDisruptor timerEnableCheckMetrics timerInterceptDelayLevel
        timerStopEnqueue timerCheckMetricsWhen timerSkipUnknownError timerWarmEnable timerStopDequeue
        timerEnableRetryUntilSuccess timerCongestNumEachSlot timerMetricSmallThreshold timerProgressLogIntervalMs
        disappearTimeAfterStart""",
    "recalling a delayed message is a feature of 5.x": "allowRecallWhenBrokerNotWriteable recallMessageEnable",
    "delayed messages are delivered in order of their due time, one after the other": """
        enableScheduleMessageStats enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit
        scheduleAsyncDeliverMaxResendNum2Blocked""",
    "any topic takes any kind of message, as in 4.x": "enableMixedMessageType",
    "light message queues are a feature of 5.x": "enableLmq enableMultiDispatch maxLmqConsumeQueueNum enableLmqStats",
    "compacted topics are a feature of 5.x": """
        compactionMappedFileSize compactionCqMappedFileSize compactionScheduleInternal maxOffsetMapSize
        compactionThreadNum enableCompaction""",
    "reads from old files are not throttled; they are fetched by a thread": """
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
    "the log is mapped for reading only, and a mapping goes with its last reader": """
        mappedFileSwapEnable commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval cleanSwapedMapInterval logicQueueSwapMapReserveFileNum
        writeWithoutMmap putConsumeQueueDataByFileChannel""",
    "queues and index are fed with the append, so there is no dispatch to tune": """
        dispatchCqThreads dispatchCqCacheNum enableAsyncReput recheckReputOffsetFromCq dispatchFromSenderThread
        enableBuildConsumeQueueConcurrently batchDispatchRequestThreadPoolNums readUnCommitted maxConsumeQueueScan
        sampleCountThreshold sampleSteps""",
    "batch consume queues are a feature of 5.x": "mapperFileSizeBatchConsumeQueue searchBcqByCacheEnable",
    "one event loop appends: there is no lock to tune": "useABSLock spinLockCollisionRetreatOptimalDegree",
    "an append is answered or refused at once": "putMessageTimeout wakeCommitWhenPutMessage wakeFlushWhenPutMessage",
    "recovery reads what the checkpoint leaves, and always checks it": """
        maxRecoveryCommitlogFiles maxChecksumRange recoverConcurrently enableAcceleratedRecovery
        enableLogConsumeQueueRepeatedlyBuildWhenRecover enableRunningFlagsInFlush
        forceVerifyPropCRC correctLogicMinOffsetSleepInterval correctLogicMinOffsetForceInterval""",
    "the limits on names are the protocol's": "maxTopicLength autoMessageVersionOnTopicLen",
    "a round of cleaning removes at most ten files": """
        deleteFileBatchMax maxBatchDeleteFilesNum logicalDiskSpaceCleanForciblyThreshold""",
    "the priority of a thread is the kernel's business": "highSpeedMode",
    "nothing is billed": """
        commercialEnable commercialTimerCount commercialTransCount commercialBigCount commercialBaseCount
        commercialSizePerMsg accountStatsEnable accountStatsPrintZeroValues""",
    "statistics are kept for what exists": "enableDetailStat autoDeleteUnusedStats maxStatsIdleTimeInMinutes",
    "no release reads this key": "maxDelayTime",
    "metrics are served in Prometheus form, all of them or none: see metricsExporterType": """
        metricsGrpcExporterTarget metricsGrpcExporterHeader metricGrpcExporterTimeOutInMills
        metricGrpcExporterIntervalInMills metricLoggingExporterIntervalInMills metricsLabel metricsInDelta
        enableRemotingMetrics
        enableMessageStoreMetrics enablePopMetrics enableConnectionMetrics enableTransactionMetrics enableStatsMetrics
        enableRequestMetrics enableLagAndDlqMetrics""",
    "access control is that of 4.x: accounts and white lists, see aclEnable": """
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
