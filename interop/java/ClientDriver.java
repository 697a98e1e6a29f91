import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Drives Apache's Java client: each line of standard input is a command, each line of standard output a response or a
 * message that arrived. Compiles with the client libraries of both 4.9 and 5.x.
 *
 * Run by interop/broker/foreign_clients.py as: ClientDriver nameserver. The commands are those of
 * interop/broker/client.py.
 */
public final class ClientDriver {
    interface Verb {
        Line run(Line request) throws Exception;
    }

    /** This version of the client does not have the feature. */
    static final class NotOffered extends Exception {
        NotOffered(String why) {
            super(why);
        }
    }

    private ClientDriver() {}

    public static void main(String[] args) throws Exception {
        Line ready = new Line().with("event", "ready");
        // Line keeps the real standard output; everything else that is printed goes to standard error.
        System.setOut(System.err);
        ProducerCommands producers = new ProducerCommands(args[0]);
        ConsumerCommands consumers = new ConsumerCommands(args[0], producers);
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
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = input.readLine(); text != null; text = input.readLine()) {
            Line request = Line.parse(text);
            workers.submit(() -> respond(request, verbs.get(request.get("do"))).with("id", request.get("id")).print());
        }
        // The client libraries leave non-daemon threads running.
        System.exit(0);
    }

    private static Line respond(Line request, Verb verb) {
        try {
            return verb.run(request);
        } catch (NotOffered problem) {
            return new Line().with("not_offered", problem.getMessage());
        } catch (Throwable problem) {
            problem.printStackTrace();
            return new Line().with("error", problem);
        }
    }
}
