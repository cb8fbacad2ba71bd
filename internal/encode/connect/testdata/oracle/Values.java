import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.config.Configuration;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.PostgresStreamingChangeEventSource.PgConnectionSupplier;
import io.debezium.connector.postgresql.PostgresType;
import io.debezium.connector.postgresql.PostgresValueConverter;
import io.debezium.connector.postgresql.TypeRegistry;
import io.debezium.connector.postgresql.connection.PostgresConnection;
import io.debezium.connector.postgresql.connection.ReplicationMessage;
import io.debezium.connector.postgresql.connection.ReplicationMessageColumnValueResolver;
import io.debezium.relational.Column;
import io.debezium.relational.ValueConverter;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.TimeZone;
import java.util.concurrent.Callable;
import org.apache.kafka.connect.data.ConnectSchema;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.storage.StringConverter;
import org.postgresql.core.BaseConnection;

/** Values PORT INPUT OUTPUT: converts every value of the input as the connector does from a pgoutput stream. */
public class Values {
    private final ObjectMapper json = new ObjectMapper();
    private final StringConverter string = new StringConverter();
    private final SimpleHeaderConverter simple = new SimpleHeaderConverter();
    private final JsonConverter typed = new JsonConverter();
    private final JsonConverter untyped = new JsonConverter();
    private final Map<String, String> modes = new LinkedHashMap<>();
    private final String port;
    private final Connection db;
    private final PrintStream out;
    private TypeRegistry types;
    private PostgresValueConverter values;

    private Values(String port, String output) throws Exception {
        string.configure(Map.of(), false);
        typed.configure(Map.of("schemas.enable", "true", "converter.type", "value"), false);
        untyped.configure(Map.of("schemas.enable", "false", "converter.type", "value"), false);
        this.port = port;
        db = DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + port + "/postgres?user=postgres");
        execute("set datestyle='ISO, MDY'; set intervalstyle='postgres'; set timezone='UTC'; set bytea_output='hex'; set extra_float_digits=3");
        out = new PrintStream(new FileOutputStream(output), false, StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        Locale.setDefault(Locale.US);
        Values v = new Values(args[0], args[2]);
        for (String line : Files.readAllLines(Path.of(args[1]))) {
            v.line(line);
        }
        v.out.close();
        System.exit(0);
    }

    private void line(String line) throws Exception {
        if (line.isBlank() || line.startsWith("#")) {
            return;
        }
        if (line.startsWith("!")) {
            execute(line.substring(1));
            values = null;
        } else if (line.equals("modes") || line.startsWith("modes ")) {
            modes.clear();
            for (String option : line.substring(5).trim().split("\\s+")) {
                if (!option.isEmpty()) {
                    modes.put(option.split("=")[0], option.split("=")[1]);
                }
            }
            values = null;
        } else {
            type(line.split("\t"));
        }
    }

    private void connect() {
        Configuration.Builder b = Configuration.create().with("database.hostname", "127.0.0.1").with("database.port", port)
                .with("database.user", "postgres").with("database.password", "x").with("database.dbname", "postgres").with("topic.prefix", "t");
        modes.forEach(b::with);
        PostgresConnectorConfig config = new PostgresConnectorConfig(b.build());
        types = PostgresConnection.createTypeRegistry(config.getJdbcConfig());
        values = PostgresValueConverter.of(config, StandardCharsets.UTF_8, types);
    }

    private void type(String[] line) throws Exception {
        if (values == null) {
            connect();
        }
        execute("drop table if exists v; create table v (c " + line[0] + ")");
        String[] column = query("select atttypid::int8, atttypmod from pg_attribute where attrelid = 'v'::regclass and attname = 'c'", 2);
        long oid = Long.parseLong(column[0]);
        int modifier = Integer.parseInt(column[1]);
        PostgresType type = types.get((int) oid);
        Constructor<?> metadata = Class.forName("io.debezium.connector.postgresql.connection.pgoutput.ColumnMetaData").getDeclaredConstructors()[0];
        metadata.setAccessible(true);
        Object meta = metadata.newInstance("c", type, false, true, false, null, modifier, type.getName());
        String name = (String) call(meta, "getTypeName");
        Column c = Column.editor().name("c").type(type.getName(), name).optional(true).jdbcType(type.getRootType().getJdbcId())
                .nativeType(type.getRootType().getOid()).length((int) call(meta, "getLength")).scale((Integer) call(meta, "getScale")).create();
        SchemaBuilder builder = values.schemaBuilder(c);
        Schema schema = builder == null ? null : builder.optional().build();
        ValueConverter converter = schema == null ? null : values.converter(c, new Field("c", 0, schema));
        for (int i = 1; i < line.length; i++) {
            execute("truncate v; insert into v values ((" + line[i] + ")::" + line[0] + ")");
            ObjectNode o = json.createObjectNode().put("sql", line[0]);
            o.set("type", describe(oid, modifier));
            if (!modes.isEmpty()) {
                ObjectNode m = o.putObject("modes");
                modes.forEach(m::put);
            }
            String text = query("select case when c is distinct from null then format('%s', c) end from v", 1)[0];
            o.put("text", text);
            if (converter == null) {
                out.println(json.writeValueAsString(o.put("unsupported", true)));
                return;
            }
            convert(o, schema, converter, type, name, text);
            out.println(json.writeValueAsString(o));
        }
    }

    private void convert(ObjectNode o, Schema schema, ValueConverter converter, PostgresType type, String name, String text) throws Exception {
        Object value;
        try {
            Constructor<?> columnValue = Class.forName("io.debezium.connector.postgresql.connection.pgoutput.PgOutputColumnValue").getDeclaredConstructors()[0];
            columnValue.setAccessible(true);
            PgConnectionSupplier connection = () -> db.unwrap(BaseConnection.class);
            value = converter.convert(ReplicationMessageColumnValueResolver.resolveValue("c", type, name,
                    (ReplicationMessage.ColumnValue) columnValue.newInstance(text), connection, false, types));
            if (value != null) {
                ConnectSchema.validateValue("c", schema, value);
            }
        } catch (RuntimeException e) {
            o.put("error", e.toString());
            return;
        }
        put(o, "simple", () -> simple.fromConnectHeader("t", "h", schema, value));
        put(o, "string", () -> string.fromConnectData("t", schema, value));
        put(o, "json", () -> untyped.fromConnectData("t", schema, value));
        put(o, "json-schema", () -> typed.fromConnectData("t", schema, value));
    }

    private static void put(ObjectNode o, String encoding, Callable<byte[]> bytes) throws Exception {
        byte[] b = bytes.call();
        o.put(encoding, b == null ? null : new String(b, StandardCharsets.UTF_8));
    }

    /** The type as the catalog describes it, a domain as its base with its modifier. */
    private ObjectNode describe(long oid, int modifier) throws Exception {
        String[] t = query("select typname, typtype, typelem::int8, typbasetype::int8, typtypmod, typcategory from pg_type where oid = " + oid, 6);
        if (t[1].equals("d")) {
            return describe(Long.parseLong(t[3]), modifier == -1 ? Integer.parseInt(t[4]) : modifier);
        }
        ObjectNode o = json.createObjectNode().put("OID", oid).put("Name", t[0]).put("Kind", (int) t[1].charAt(0)).put("Modifier", modifier);
        if (t[1].equals("e")) {
            ArrayNode labels = o.putArray("Labels");
            for (String label : query("select array_to_string(array_agg(enumlabel order by enumsortorder), E'\\n') from pg_enum where enumtypid = " + oid, 1)[0].split("\n")) {
                labels.add(label);
            }
        }
        if (t[5].equals("A")) {
            o.set("Elem", describe(Long.parseLong(t[2]), modifier));
        }
        return o;
    }

    private static Object call(Object o, String method) throws Exception {
        Method m = o.getClass().getDeclaredMethod(method);
        m.setAccessible(true);
        return m.invoke(o);
    }

    private void execute(String sql) throws SQLException {
        try (Statement s = db.createStatement()) {
            s.execute(sql);
        }
    }

    private String[] query(String sql, int columns) throws SQLException {
        try (Statement s = db.createStatement(); ResultSet r = s.executeQuery(sql)) {
            r.next();
            String[] row = new String[columns];
            for (int i = 0; i < columns; i++) {
                row[i] = r.getString(i + 1);
            }
            return row;
        }
    }
}
