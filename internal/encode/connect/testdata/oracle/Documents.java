import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.transforms.outbox.EventRouter;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

/** Documents INPUT OUTPUT: sends every document of the input, a JSON string a line, through the event router. */
public class Documents {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonConverter typed = new JsonConverter();
        typed.configure(Map.of("schemas.enable", "true", "converter.type", "value"), false);
        JsonConverter untyped = new JsonConverter();
        untyped.configure(Map.of("schemas.enable", "false", "converter.type", "value"), false);
        Schema row = SchemaBuilder.struct().name("s.public.outbox.Value").optional()
                .field("id", Schema.STRING_SCHEMA).field("aggregatetype", Schema.STRING_SCHEMA).field("aggregateid", Schema.STRING_SCHEMA)
                .field("payload", SchemaBuilder.string().name("io.debezium.data.Json").version(1).optional().build()).build();
        Schema source = SchemaBuilder.struct().field("connector", Schema.STRING_SCHEMA).build();
        Schema envelope = SchemaBuilder.struct().name("s.public.outbox.Envelope").field("before", row).field("after", row)
                .field("source", source).field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA).build();
        Map<String, String> options = new LinkedHashMap<>();
        EventRouter<SourceRecord> router = null;
        try (PrintStream out = new PrintStream(new FileOutputStream(args[1]), false, StandardCharsets.UTF_8)) {
            for (String line : Files.readAllLines(Path.of(args[0]))) {
                if (line.startsWith("options")) {
                    options.clear();
                    for (String option : line.substring(7).trim().split("\\s+")) {
                        options.put(option.split("=")[0], option.split("=")[1]);
                    }
                    router = null;
                    continue;
                }
                if (router == null) {
                    Map<String, String> config = new LinkedHashMap<>(options);
                    config.put("table.expand.json.payload", "true");
                    router = new EventRouter<>();
                    router.configure(config);
                }
                String document = json.readValue(line, String.class);
                ObjectNode o = json.createObjectNode();
                if (!options.isEmpty()) {
                    ObjectNode m = o.putObject("options");
                    options.forEach(m::put);
                }
                o.put("text", document);
                try {
                    Struct after = new Struct(row).put("id", "1").put("aggregatetype", "T").put("aggregateid", "k").put("payload", document);
                    Struct value = new Struct(envelope).put("after", after).put("source", new Struct(source).put("connector", "postgresql"))
                            .put("op", "c").put("ts_ms", 1L);
                    SourceRecord r = router.apply(new SourceRecord(Map.of(), Map.of(), "s.public.outbox", null, null, null, envelope, value));
                    o.put("json", new String(untyped.fromConnectData("t", r.valueSchema(), r.value()), StandardCharsets.UTF_8));
                    o.put("json-schema", new String(typed.fromConnectData("t", r.valueSchema(), r.value()), StandardCharsets.UTF_8));
                } catch (RuntimeException e) {
                    o.put("error", e.getClass().getName() + ": " + e.getMessage());
                }
                out.println(json.writeValueAsString(o));
            }
        }
    }
}
