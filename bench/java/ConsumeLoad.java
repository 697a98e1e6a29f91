import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** A push consumer of a new group that reads a topic from its beginning, with the client's defaults. */
final class ConsumeLoad implements Load {
    private static final long FIRST_MESSAGE_SECONDS = 30;

    private final AtomicLong consumed = new AtomicLong();
    private final CountDownLatch first = new CountDownLatch(1);

    @Override
    public LoadResult run(LoadPlan plan, Marks marks) throws Exception {
        String unique = "bench-java-" + System.nanoTime();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(unique);
        consumer.setNamesrvAddr(plan.nameserver);
        consumer.setInstanceName(unique);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(plan.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.addAndGet(messages.size());
            first.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            LoadResult result = measure(plan, marks);
            checkMoreThan(consumed.get(), consumer, plan.topic);
            return result;
        } finally {
            consumer.shutdown();
        }
    }

    private LoadResult measure(LoadPlan plan, Marks marks) throws Exception {
        if (!first.await(FIRST_MESSAGE_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no message of " + plan.topic + " within " + FIRST_MESSAGE_SECONDS + " s");
        }
        TimeUnit.NANOSECONDS.sleep(plan.warmNanos());
        marks.begin();
        long before = consumed.get();
        long began = System.nanoTime();
        TimeUnit.NANOSECONDS.sleep(plan.nanos());
        LoadResult result = new LoadResult();
        result.messages = consumed.get() - before;
        result.seconds = (System.nanoTime() - began) / 1e9;
        marks.end();
        return result;
    }

    /** At the end of the topic the consumer would have waited, and the rate would be of nothing. */
    private static void checkMoreThan(long consumed, DefaultMQPushConsumer consumer, String topic) throws Exception {
        long stored = 0;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            stored += consumer.maxOffset(queue);
        }
        if (consumed >= stored) {
            throw new IllegalStateException("all " + stored + " messages of " + topic + " were consumed: fill in more");
        }
    }
}
