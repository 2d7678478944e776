import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Counts the records of each word (input value) and writes the counts, until its standard input ends.
 *
 * <p>Arguments: bootstrap servers, application id, topic of the words, topic of the counts, folder of the state, and
 * maybe a processing guarantee and the timeout of its transactions in milliseconds. With exactly_once_v2 it is a static
 * member of its group, so that one that was killed is followed at once.
 */
public class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        config.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        if (arguments.length > 5) {
            config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[5]);
            config.put(StreamsConfig.consumerPrefix("group.instance.id"), "counter");
        }
        if (arguments.length > 6) {
            config.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), arguments[6]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[2])
            .map((key, word) -> KeyValue.pair(word, word))  // another key: Streams writes a repartition topic
            .groupByKey(Grouped.as("by-word"))
            .count(Materialized.as("counts"))  // with a changelog topic
            .toStream()
            .mapValues(String::valueOf)
            .to(arguments[3]);
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        while (System.in.read() >= 0) { }
        streams.close();
    }
}
