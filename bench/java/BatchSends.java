import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Several messages in one request. */
final class BatchSends implements Sends {
    @Override
    public DefaultMQProducer producer(String group) {
        return new DefaultMQProducer(group);
    }

    @Override
    public Sender sender(DefaultMQProducer producer, LoadPlan plan) {
        byte[] body = plan.body();
        return () -> {
            List<Message> messages = new ArrayList<>(plan.batch);
            for (int i = 0; i < plan.batch; i++) {
                messages.add(new Message(plan.topic, body));
            }
            return producer.send(messages);
        };
    }

    @Override
    public int messages(LoadPlan plan) {
        return plan.batch;
    }
}
