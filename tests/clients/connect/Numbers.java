import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/**
 * A source connector that supports exactly once, as none of Kafka's own of a single file does: it counts from 0 to
 * `count`, and goes on behind the offset that it has committed.
 */
public class Numbers extends SourceConnector {
    private Map<String, String> config;

    @Override
    public void start(Map<String, String> config) {
        this.config = config;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Counting.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return List.of(config);
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> config) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public void stop() { }

    @Override
    public ConfigDef config() {
        return new ConfigDef()
            .define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "to which it writes")
            .define("count", ConfigDef.Type.INT, ConfigDef.Importance.HIGH, "of records");
    }

    @Override
    public String version() {
        return "1";
    }

    public static class Counting extends SourceTask {
        private static final int AT_ONCE = 10;
        private static final Map<String, String> SOURCE = Map.of("source", "numbers");
        private String topic;
        private int count;
        private int next;

        @Override
        public void start(Map<String, String> config) {
            topic = config.get("topic");
            count = Integer.parseInt(config.get("count"));
            Map<String, Object> offset = context.offsetStorageReader().offset(SOURCE);
            next = offset == null ? 0 : (int) (long) (Long) offset.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(20);
            List<SourceRecord> records = new ArrayList<>();
            for (int most = Math.min(next + AT_ONCE, count); next < most; next++) {
                Map<String, Long> offset = Map.of("next", (long) next + 1);
                String key = "key-" + next % 50;
                String value = String.valueOf(next);
                records.add(new SourceRecord(SOURCE, offset, topic, Schema.STRING_SCHEMA, key, Schema.STRING_SCHEMA, value));
            }
            return records;
        }

        @Override
        public void stop() { }

        @Override
        public String version() {
            return "1";
        }
    }
}
