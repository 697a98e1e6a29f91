import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** One message a request, and the next when it is acknowledged. */
final class SingleSends implements Sends {
    @Override
    public DefaultMQProducer producer(String group) {
        return new DefaultMQProducer(group);
    }

    @Override
    public Sender sender(DefaultMQProducer producer, LoadPlan plan) {
        byte[] body = plan.body();
        return () -> producer.send(new Message(plan.topic, body));
    }
}
