import java.net.InetSocketAddress;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.common.PlainAccessConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.common.sysflag.TopicSysFlag;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The calls of mqadmin, made through the classes it is built on. */
final class AdminScenes implements AutoCloseable {
    private static final long TIMEOUT_MS = 10_000;
    private static final List<String> TOPICS = List.of(
            "GoldenNormal", "GoldenOrder", "GoldenDelay", "GoldenTx", "GoldenBatch", "GoldenSql", "GoldenRetry",
            "GoldenRequest", "GoldenClient", "GoldenGone");
    private final Driver.Servers servers;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MS);
    /** For the calls that DefaultMQAdminExt does not offer. */
    private final MQClientAPIImpl api;
    private final String broker;
    private final MessageQueue queue;

    AdminScenes(Driver.Servers servers) throws Exception {
        this.servers = servers;
        this.broker = servers.brokerAddress();
        this.queue = new MessageQueue("GoldenNormal", servers.broker(), 0);
        admin.setNamesrvAddr(servers.nameserver());
        admin.setClientIP("127.0.0.1");
        admin.setInstanceName("admin");
        admin.start();
        api = MQClientManager.getInstance().getOrCreateMQClientInstance(admin).getMQClientAPIImpl();
    }

    void createTopics() {
        Driver.refused("route of no topic", () -> admin.examineTopicRouteInfo("GoldenMissing"));
        for (String topic : TOPICS) {
            Driver.step("create " + topic, () -> admin.createAndUpdateTopicConfig(broker, new TopicConfig(topic, 4, 4, 6)));
        }
        Driver.step("create GoldenUnit", () -> {
            TopicConfig unit = new TopicConfig("GoldenUnit", 1, 1, 6);
            unit.setTopicSysFlag(TopicSysFlag.buildSysFlag(true, true));
            admin.createAndUpdateTopicConfig(broker, unit);
        });
        // Before any message is there: this conf then rides on every later answer to the broker's registration.
        Driver.step("order conf", () -> admin.createOrUpdateOrderConf("GoldenOrder", servers.broker() + ":4", true));
    }

    void playNameserver() {
        Driver.step("topic route", () -> admin.examineTopicRouteInfo("GoldenNormal"));
        // Also lets routes carry the order conf, which they do not by default.
        Driver.step("nameserver config", () -> {
            Properties change = new Properties();
            change.setProperty("orderMessageEnable", "true");
            admin.updateNameServerConfig(change, null);
            admin.getNameServerConfig(null);
        });
        Driver.step("ordered topic route", () -> {
            String conf = admin.examineTopicRouteInfo("GoldenOrder").getOrderTopicConf();
            Driver.check(conf.equals(servers.broker() + ":4"), "order conf " + conf);
        });
        Driver.step("cluster info", admin::examineBrokerClusterInfo);
        Driver.step("topic list", () -> {
            Set<String> topics = admin.fetchAllTopicList().getTopicList();
            Driver.check(topics.containsAll(TOPICS), "topics " + topics);
        });
        Driver.step("topics by cluster", () -> admin.fetchTopicsByCLuster(servers.cluster()));
        Driver.step("topics by no cluster", () -> admin.fetchTopicsByCLuster("NoSuchCluster"));
        Driver.step("system topics", () -> api.getSystemTopicList(TIMEOUT_MS));
        Driver.step("unit topics", () -> {
            api.getUnitTopicList(true, TIMEOUT_MS);
            api.getHasUnitSubTopicList(true, TIMEOUT_MS);
            api.getHasUnitSubUnUnitTopicList(true, TIMEOUT_MS);
        });
        Driver.step("kv config", () -> {
            admin.createAndUpdateKvConfig("GoldenSpace", "key", "value 值");
            Driver.check(admin.getKVConfig("GoldenSpace", "key").equals("value 值"), "kv value");
            admin.getKVListByNamespace("GoldenSpace");
            admin.deleteKvConfig("GoldenSpace", "key");
            admin.deleteKvConfig("GoldenSpace", "never there");
        });
        Driver.refused("kv of no key", () -> admin.getKVConfig("GoldenSpace", "key"));
        Driver.refused("kv of no namespace", () -> admin.getKVListByNamespace("NoSuchSpace"));
        Driver.step("write permission", () -> {
            Driver.check(admin.wipeWritePermOfBroker(servers.nameserver(), servers.broker()) > 0, "nothing wiped");
            admin.examineTopicRouteInfo("GoldenNormal");
            Driver.check(admin.addWritePermOfBroker(servers.nameserver(), servers.broker()) > 0, "nothing added");
            admin.wipeWritePermOfBroker(servers.nameserver(), "no-such-broker");
        });
    }

    void playBroker(String offsetId, String uniqueKey) {
        Driver.step("broker config", () -> {
            admin.getBrokerConfig(broker);
            Properties change = new Properties();
            change.setProperty("slaveReadEnable", "true");
            admin.updateBrokerConfig(broker, change);
        });
        Driver.step("broker runtime", () -> admin.fetchBrokerRuntimeStats(broker));
        Driver.step("broker stats data", () -> admin.viewBrokerStatsData(broker, "BROKER_PUT_NUMS", servers.cluster()));
        Driver.refused("stats of nothing", () -> admin.viewBrokerStatsData(broker, "TOPIC_PUT_NUMS", "NoSuchTopic"));
        Driver.step("all topic config", () -> admin.getAllTopicConfig(broker, TIMEOUT_MS));
        Driver.step("all subscription groups", () -> admin.getAllSubscriptionGroup(broker, TIMEOUT_MS));
        Driver.step("system topics of broker", () -> api.getSystemTopicListFromBroker(broker, TIMEOUT_MS));
        Driver.step("topic stats", () -> admin.examineTopicStats("GoldenNormal"));
        Driver.refused("stats of no topic", () -> api.getTopicStatsInfo(broker, "NoSuchTopic", TIMEOUT_MS));
        Driver.step("who consumes", () -> admin.queryTopicConsumeByWho("GoldenNormal"));
        Driver.step("cleaning", () -> {
            admin.cleanExpiredConsumerQueueByAddr(broker);
            admin.deleteExpiredCommitLogByAddr(broker);
            admin.cleanUnusedTopicByAddr(broker);
        });
        Driver.step("query by key", () -> {
            long now = System.currentTimeMillis();
            admin.queryMessage("GoldenNormal", "shared", 8, 0, now);
            admin.queryMessageByUniqKey("GoldenNormal", uniqueKey, 8, 0, now);
        });
        Driver.refused("query by no key", () ->
                admin.queryMessage("GoldenNormal", "no such key", 8, 0, System.currentTimeMillis()));
        Driver.step("view by id", () -> admin.viewMessage(throughProxy(offsetId)));
        Driver.refused("view of nothing", () -> api.viewMessage(broker, 1L << 40, TIMEOUT_MS));
        Driver.step("consume queue", () ->
                admin.queryConsumeQueue(broker, "GoldenNormal", 0, 0, 4, "golden_group"));
        // The broker takes any message for a half message here; this one is not, and its check finds no producer.
        Driver.step("resume check", () -> api.resumeCheckHalfMessage(broker, offsetId, TIMEOUT_MS));
        Driver.step("producers", () -> {
            admin.examineProducerConnectionInfo("golden_producer", "GoldenNormal");
            admin.getAllProducerInfo(broker);
        });
        Driver.refused("no producers", () -> admin.examineProducerConnectionInfo("no_such_group", "GoldenNormal"));
        Driver.step("access rules", () -> {
            PlainAccessConfig account = new PlainAccessConfig();
            account.setAccessKey("goldenOther");
            account.setSecretKey("goldenOtherSecret");
            account.setTopicPerms(List.of("GoldenNormal=PUB|SUB"));
            admin.createAndUpdatePlainAccessConfig(broker, account);
            admin.examineBrokerClusterAclVersionInfo(broker);
            admin.updateGlobalWhiteAddrConfig(broker, "127.0.0.1");
            admin.deletePlainAccessConfig(broker, "goldenOther");
        });
    }

    void playGroups(String clientId, String offsetId) {
        Driver.step("consumers", () -> admin.examineConsumerConnectionInfo("golden_group"));
        Driver.refused("no consumers", () -> admin.examineConsumerConnectionInfo("no_such_group"));
        Driver.step("consume stats", () -> {
            admin.examineConsumeStats("golden_group");
            admin.examineConsumeStats("golden_group", "GoldenNormal");
            admin.fetchConsumeStatsInBroker(broker, false, TIMEOUT_MS);
        });
        Driver.step("consume time span", () -> admin.queryConsumeTimeSpan("GoldenNormal", "golden_group"));
        Driver.step("correction offset", () -> api.queryCorrectionOffset(
                broker, "GoldenNormal", "golden_pull", Set.of("golden_group"), TIMEOUT_MS));
        Driver.step("running info", () -> admin.getConsumerRunningInfo("golden_group", clientId, false));
        Driver.refused("running info of nobody", () ->
                admin.getConsumerRunningInfo("golden_group", "nobody", false));
        Driver.step("consume directly", () ->
                api.consumeMessageDirectly(broker, "golden_group", clientId, offsetId, TIMEOUT_MS));
        Driver.step("consumer status", () -> admin.getConsumeStatus("GoldenNormal", "golden_group", clientId));
        Driver.step("update an offset", () -> admin.updateConsumeOffset(broker, "golden_pull", queue, 1));
        Driver.step("clone offsets", () -> admin.cloneGroupOffset("golden_group", "golden_clone", "GoldenNormal", false));
        // Refused until the consumers have committed an offset of every queue, which they do every few seconds.
        Driver.eventually("reset offsets online", () ->
                admin.resetOffsetByTimestamp("GoldenNormal", "golden_group", 0, true));
        Driver.step("reset offsets offline", () -> admin.resetOffsetByTimestampOld("golden_pull", "GoldenNormal", 0, true));
    }

    void playRemovals() {
        Driver.step("subscription group", () -> {
            SubscriptionGroupConfig group = new SubscriptionGroupConfig();
            group.setGroupName("golden_gone");
            admin.createAndUpdateSubscriptionGroupConfig(broker, group);
            admin.deleteSubscriptionGroup(broker, "golden_gone", true);
        });
        Driver.step("delete a topic", () -> {
            admin.deleteTopicInBroker(Set.of(broker), "GoldenGone");
            admin.deleteTopicInNameServer(Set.of(servers.nameserver()), "GoldenGone", servers.cluster());
        });
        Driver.refused("route of the deleted topic", () -> admin.examineTopicRouteInfo("GoldenGone"));
        Driver.step("delete no topic", () ->
                admin.deleteTopicInNameServer(Set.of(servers.nameserver()), "NoSuchTopic", servers.cluster()));
    }

    /** An offset id names the broker's real port; clients dial that, past the recorder. Name the recorder's instead. */
    private String throughProxy(String offsetId) throws Exception {
        long offset = MessageDecoder.decodeMessageId(offsetId).getOffset();
        String[] parts = broker.split(":");
        return MessageDecoder.createMessageId(new InetSocketAddress(parts[0], Integer.parseInt(parts[1])), offset);
    }

    @Override
    public void close() {
        admin.shutdown();
    }
}
