import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's mqadmin, many commands in one JVM: each line of standard input is one command with its options, each line of
 * standard output contains everything that the command printed.
 */
public final class MqadminShell {
    private MqadminShell() {}

    public static void main(String[] args) throws Exception {
        // Line has kept the real standard output, so the output of commands cannot mix with the responses.
        new Line().with("event", "ready").print();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = input.readLine(); text != null; text = input.readLine()) {
            Line request = Line.parse(text);
            new Line().with("id", request.get("id")).with("printed", run(request)).print();
        }
        System.exit(0);
    }

    private static String run(Line request) throws Exception {
        List<String> words = new ArrayList<>();
        for (int i = 0; request.has("word" + i); i++) {
            words.add(request.get("word" + i));
        }
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(stream);
        System.setErr(stream);
        MQAdminStartup.main0(words.toArray(new String[0]), null);
        return printed.toString(StandardCharsets.UTF_8);
    }
}
