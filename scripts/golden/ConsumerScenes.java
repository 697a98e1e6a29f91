import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers (tags, SQL, in order, failing), a pull consumer and a lite pull consumer. */
final class ConsumerScenes implements AutoCloseable {
    private static final int WAIT_SECONDS = 60;
    private final Driver.Servers servers;
    // Two members, so that the broker tells the first of the second; they stay up for the admin scenes.
    private final DefaultMQPushConsumer first = new DefaultMQPushConsumer("golden_group");
    private final DefaultMQPushConsumer second = new DefaultMQPushConsumer("golden_group");

    ConsumerScenes(Driver.Servers servers) {
        this.servers = servers;
    }

    String firstClientId() {
        return first.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }

    void play() {
        Driver.step("push by tag", () -> {
            CountDownLatch some = new CountDownLatch(3);
            pushConcurrently(first, "first", some, ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
            first.subscribe("GoldenNormal", "TagA || TagB");
            first.start();
            await(some);
            pushConcurrently(second, "second", some, ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
            second.subscribe("GoldenNormal", "TagA || TagB");
            second.start();
        });
        Driver.step("push by SQL", () -> runPush("golden_sql", "GoldenSql", MessageSelector.bySql("price > 2")));
        Driver.refused("push by broken SQL", () -> runPush("golden_bad", "GoldenSql", MessageSelector.bySql("price >")));
        Driver.step("push in order", this::pushInOrder);
        Driver.step("push and fail", this::pushAndFail);
        Driver.step("pull", this::pull);
        Driver.step("lite pull", this::litePull);
    }

    private void runPush(String group, String topic, MessageSelector selector) throws Exception {
        CountDownLatch some = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        pushConcurrently(consumer, group, some, ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.subscribe(topic, selector);
        try {
            consumer.start();
            await(some);
        } finally {
            consumer.shutdown();
        }
    }

    private void pushInOrder() throws Exception {
        CountDownLatch some = new CountDownLatch(3);
        DefaultMQPushConsumer consumer = ordered("ordered", some);
        consumer.start();
        await(some);
        // A second member takes over some queues: the first unlocks them, one-way.
        DefaultMQPushConsumer other = ordered("ordered-too", some);
        other.start();
        Driver.eventually("share ordered queues", () -> Driver.check(holdsQueues(other), "no queues yet"));
        other.shutdown();
        consumer.shutdown();
    }

    private DefaultMQPushConsumer ordered(String instance, CountDownLatch seen) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("golden_ordered");
        configure(consumer, instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("GoldenOrder", "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            seen.countDown();
            return ConsumeOrderlyStatus.SUCCESS;
        });
        return consumer;
    }

    private static boolean holdsQueues(DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .anyMatch(queue -> queue.getTopic().equals("GoldenOrder"));
    }

    private void pushAndFail() throws Exception {
        // Once at first, once more from the retry topic (10 s later), then the dead letter queue.
        CountDownLatch tries = new CountDownLatch(2);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("golden_failing");
        pushConcurrently(consumer, "failing", tries, ConsumeConcurrentlyStatus.RECONSUME_LATER);
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe("GoldenRetry", "*");
        consumer.start();
        await(tries);
        consumer.shutdown();
    }

    private void pull() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("golden_pull");
        configure(consumer, "pull");
        consumer.start();
        MessageQueue queue = consumer.fetchSubscribeMessageQueues("GoldenNormal").iterator().next();
        long end = consumer.maxOffset(queue);
        Driver.check(consumer.minOffset(queue) == 0 && end > 0, "offsets of " + queue);
        consumer.earliestMsgStoreTime(queue);
        consumer.searchOffset(queue, System.currentTimeMillis());
        expect(consumer.pull(queue, "*", 0, 8).getPullStatus(), PullStatus.FOUND);
        expect(consumer.pull(queue, "NoSuchTag", 0, 8).getPullStatus(), PullStatus.NO_MATCHED_MSG);
        expect(consumer.pull(queue, "*", end, 8).getPullStatus(), PullStatus.NO_NEW_MSG);
        expect(consumer.pull(queue, "*", end + 100, 8).getPullStatus(), PullStatus.OFFSET_ILLEGAL);
        expect(consumer.pullBlockIfNotFound(queue, "TagA || TagB", 0, 8).getPullStatus(), PullStatus.FOUND);
        consumer.updateConsumeOffset(queue, end);
        consumer.persist(queue);
        consumer.fetchConsumeOffset(queue, true);
        consumer.shutdown();
    }

    private void litePull() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("golden_lite");
        configure(consumer, "lite");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("GoldenBatch", "*");
        consumer.start();
        Driver.check(!consumer.poll(WAIT_SECONDS * 1000L).isEmpty(), "nothing polled");
        consumer.commitSync();
        consumer.shutdown();
    }

    private void pushConcurrently(
            DefaultMQPushConsumer consumer, String instance, CountDownLatch seen, ConsumeConcurrentlyStatus answer) {
        configure(consumer, instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> seen.countDown());
            return answer;
        });
    }

    private void configure(ClientConfig client, String instance) {
        client.setNamesrvAddr(servers.nameserver());
        client.setClientIP("127.0.0.1");
        client.setInstanceName(instance);
    }

    private static void await(CountDownLatch latch) throws Exception {
        Driver.check(latch.await(WAIT_SECONDS, TimeUnit.SECONDS), "messages did not come");
    }

    private static void expect(PullStatus seen, PullStatus wanted) {
        Driver.check(seen == wanted, "pull status " + seen + ", not " + wanted);
    }

    @Override
    public void close() {
        List.of(second, first).forEach(DefaultMQPushConsumer::shutdown);
    }
}
