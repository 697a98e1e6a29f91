import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's mqadmin, many commands in one Java machine: each line of the input is one command with its options, each
 * line of the output all that the command printed.
 */
public final class MqadminShell {
    private MqadminShell() {}

    public static void main(String[] args) throws Exception {
        // Line has taken the real output before this, so commands cannot print among the answers.
        new Line().with("event", "ready").print();
        BufferedReader asks = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = asks.readLine(); text != null; text = asks.readLine()) {
            Line ask = Line.parse(text);
            new Line().with("id", ask.get("id")).with("printed", run(ask)).print();
        }
        System.exit(0);
    }

    private static String run(Line ask) throws Exception {
        List<String> words = new ArrayList<>();
        for (int i = 0; ask.has("word" + i); i++) {
            words.add(ask.get("word" + i));
        }
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(stream);
        System.setErr(stream);
        MQAdminStartup.main0(words.toArray(new String[0]), null);
        return printed.toString(StandardCharsets.UTF_8);
    }
}
