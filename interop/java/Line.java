import java.io.PrintStream;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** One line of the protocol with interop/broker/client_process.py: URL-encoded form fields, easy in every language. */
final class Line {
    // The client libraries print to System.out too; their output must not mix with the responses.
    private static final PrintStream OUT = System.out;
    private final Map<String, String> fields = new LinkedHashMap<>();

    static Line parse(String text) {
        Line line = new Line();
        for (String pair : text.split("&")) {
            String[] parts = pair.split("=", 2);
            line.with(URLDecoder.decode(parts[0], StandardCharsets.UTF_8),
                    URLDecoder.decode(parts[1], StandardCharsets.UTF_8));
        }
        return line;
    }

    Line with(String name, Object value) {
        fields.put(name, value == null ? "" : value.toString());
        return this;
    }

    boolean has(String name) {
        return fields.containsKey(name);
    }

    String get(String name) {
        String value = fields.get(name);
        if (value == null) {
            throw new IllegalArgumentException("no " + name + " in " + fields);
        }
        return value;
    }

    String get(String name, String otherwise) {
        return fields.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return has(name) ? Integer.parseInt(get(name)) : otherwise;
    }

    byte[] bytes(String name) {
        return get(name).getBytes(StandardCharsets.UTF_8);
    }

    Map<String, String> all() {
        return fields;
    }

    void print() {
        StringBuilder text = new StringBuilder();
        fields.forEach((name, value) -> text.append(text.length() == 0 ? "" : "&")
                .append(URLEncoder.encode(name, StandardCharsets.UTF_8))
                .append('=')
                .append(URLEncoder.encode(value, StandardCharsets.UTF_8)));
        synchronized (OUT) {
            OUT.println(text);
            OUT.flush();
        }
    }
}
