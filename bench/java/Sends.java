import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;

/** A way to send: single messages, batches or transactions. One producer is shared by all threads. */
interface Sends {
    DefaultMQProducer producer(String group);

    /** What one thread needs; called once by each. */
    Sender sender(DefaultMQProducer producer, LoadPlan plan);

    interface Sender {
        SendResult send() throws Exception;
    }

    /** Messages in one request. */
    default int messages(LoadPlan plan) {
        return 1;
    }

    /** Whether a message is in its queue when the request is acknowledged. */
    default boolean isStoredWhenAcknowledged() {
        return true;
    }
}
