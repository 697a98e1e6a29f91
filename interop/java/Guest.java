import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Apache's Java client as a puppet: each line of its input is something to do, each line of its output an answer or
 * a message that arrived. Compiles against the clients of 4.9 and of 5.x alike.
 *
 * Run by interop/broker/guests.py as: Guest nameserver. The verbs are those of interop/broker/client.py.
 */
public final class Guest {
    interface Verb {
        Line run(Line ask) throws Exception;
    }

    /** Thrown where this version of the client has no such thing. */
    static final class NotOffered extends Exception {
        NotOffered(String why) {
            super(why);
        }
    }

    private Guest() {}

    public static void main(String[] args) throws Exception {
        Line ready = new Line().with("event", "ready");
        // From here on only lines are printed: a line has taken the real output.
        System.setOut(System.err);
        GuestProducers producers = new GuestProducers(args[0]);
        GuestConsumers consumers = new GuestConsumers(args[0], producers);
        Map<String, Verb> verbs = Map.ofEntries(
                Map.entry("send", producers::send),
                Map.entry("batch", producers::batch),
                Map.entry("transaction", producers::transaction),
                Map.entry("request", producers::request),
                Map.entry("query", producers::query),
                Map.entry("view", producers::view),
                Map.entry("consume", consumers::consume),
                Map.entry("stop", consumers::stop),
                Map.entry("pull", consumers::pull),
                Map.entry("poll", consumers::poll));
        ready.print();
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader asks = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = asks.readLine(); text != null; text = asks.readLine()) {
            Line ask = Line.parse(text);
            workers.submit(() -> answer(ask, verbs.get(ask.get("do"))).with("id", ask.get("id")).print());
        }
        // The client libraries leave threads behind that are no daemons.
        System.exit(0);
    }

    private static Line answer(Line ask, Verb verb) {
        try {
            return verb.run(ask);
        } catch (NotOffered problem) {
            return new Line().with("not_offered", problem.getMessage());
        } catch (Throwable problem) {
            problem.printStackTrace();
            return new Line().with("error", problem);
        }
    }
}
