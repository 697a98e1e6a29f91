import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/** Threads that share one producer, as in Apache's benchmark Producer; each sends when its last send is acknowledged. */
final class SendLoad implements Load {
    private static final int TIMEOUT_MS = 10_000;
    private static final long STORED_WAIT_NANOS = TimeUnit.SECONDS.toNanos(30);

    private final Sends sends;

    SendLoad(Sends sends) {
        this.sends = sends;
    }

    @Override
    public LoadResult run(LoadPlan plan, Marks marks) throws Exception {
        String unique = "bench-java-" + System.nanoTime();
        DefaultMQProducer producer = sends.producer(unique);
        producer.setNamesrvAddr(plan.nameserver);
        producer.setInstanceName(unique);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0); // a retry would hide a failure
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        try {
            return run(plan, producer, marks);
        } finally {
            producer.shutdown();
        }
    }

    private LoadResult run(LoadPlan plan, DefaultMQProducer producer, Marks marks) throws Exception {
        long storedFirst = stored(producer, plan.topic);
        Phase phase = new Phase();
        List<Worker> workers = new ArrayList<>();
        for (int i = 0; i < plan.threads; i++) {
            Worker worker = new Worker(sends.sender(producer, plan), phase);
            workers.add(worker);
            worker.start();
        }
        LoadResult result = measure(plan, producer, phase, marks);
        phase.isOver = true;
        long acknowledged = 0;
        for (Worker worker : workers) {
            worker.join();
            acknowledged += worker.acknowledged;
        }
        result.add(workers);
        if (sends.isStoredWhenAcknowledged()) {
            result.messages = result.requests * sends.messages(plan);
        }
        awaitStored(producer, plan.topic, storedFirst + acknowledged * sends.messages(plan));
        return result;
    }

    /** With the messages that came to the queues meanwhile. */
    private LoadResult measure(LoadPlan plan, DefaultMQProducer producer, Phase phase, Marks marks)
            throws Exception {
        TimeUnit.NANOSECONDS.sleep(plan.warmNanos());
        marks.begin();
        long storedBefore = sends.isStoredWhenAcknowledged() ? 0 : stored(producer, plan.topic);
        long began = System.nanoTime();
        phase.isMeasured = true;
        TimeUnit.NANOSECONDS.sleep(plan.nanos());
        phase.isMeasured = false;
        LoadResult result = new LoadResult();
        result.seconds = (System.nanoTime() - began) / 1e9;
        marks.end();
        result.messages = sends.isStoredWhenAcknowledged() ? 0 : stored(producer, plan.topic) - storedBefore;
        return result;
    }

    /** What was acknowledged must be in the queues: at once, or soon after the outcome of a transaction. */
    private static void awaitStored(DefaultMQProducer producer, String topic, long expected) throws Exception {
        long deadline = System.nanoTime() + STORED_WAIT_NANOS;
        for (long stored = stored(producer, topic); stored < expected; stored = stored(producer, topic)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(
                        (expected - stored) + " acknowledged messages of " + topic + " are not in its queues");
            }
            Thread.sleep(20);
        }
    }

    private static long stored(DefaultMQProducer producer, String topic) throws Exception {
        long sum = 0;
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            sum += producer.maxOffset(queue);
        }
        return sum;
    }
}
