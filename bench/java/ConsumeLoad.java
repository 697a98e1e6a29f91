import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * A push consumer of a new group that reads a topic from its beginning, with the client's defaults. Measured from a fifth
 * of its messages to nine tenths: the first are those of a consumer that starts, and the last those of queues that end.
 */
final class ConsumeLoad implements Load {
    private static final double BEGIN_SHARE = 0.2;
    private static final double END_SHARE = 0.9;
    private static final long WAIT_SECONDS = 60;

    private final AtomicLong consumed = new AtomicLong();
    private final CountDownLatch begun = new CountDownLatch(1);
    private final CountDownLatch ended = new CountDownLatch(1);

    @Override
    public LoadResult run(LoadPlan plan, Marks marks) throws Exception {
        String unique = "bench-java-" + System.nanoTime();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(unique);
        consumer.setNamesrvAddr(plan.nameserver);
        consumer.setInstanceName(unique);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(plan.topic, "*");
        long beginAt = Math.max(1, (long) (BEGIN_SHARE * plan.messages));
        long endAt = (long) (END_SHARE * plan.messages);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long count = consumed.addAndGet(messages.size());
            if (count >= beginAt) {
                begun.countDown();
            }
            if (count >= endAt) {
                ended.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return measure(marks);
        } finally {
            consumer.shutdown();
        }
    }

    private LoadResult measure(Marks marks) throws Exception {
        await(begun);
        marks.begin();
        long before = consumed.get();
        long began = System.nanoTime();
        await(ended);
        LoadResult result = new LoadResult();
        result.messages = consumed.get() - before;
        result.seconds = (System.nanoTime() - began) / 1e9;
        marks.end();
        return result;
    }

    private void await(CountDownLatch latch) throws Exception {
        if (!latch.await(WAIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException(consumed.get() + " messages within " + WAIT_SECONDS + " s");
        }
    }
}
