import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional producer of Kafka's own; prints what it took as JSON, as transact.py does.
 *
 * <p>Arguments: bootstrap servers, topic, bytes of a record, records of a transaction, transactions, those before
 * them that are not counted, and true if it is to work without transactions.
 */
public class TransactLoad {
    private static final int KEYS = 1000;
    private static final AtomicReference<Exception> FAILURE = new AtomicReference<>();

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        byte[] value = new byte[Integer.parseInt(arguments[2])];
        new Random(1).nextBytes(value);
        int records = Integer.parseInt(arguments[3]);
        int transactions = Integer.parseInt(arguments[4]);
        boolean isPlain = Boolean.parseBoolean(arguments[6]);
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("acks", "all");
        config.put("linger.ms", "5");
        config.put("batch.size", "65536");
        if (!isPlain) {
            config.put("transactional.id", "bench-" + topic);
        }
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new ByteArraySerializer())) {
            if (!isPlain) {
                producer.initTransactions();
            }
            many(producer, topic, value, records, Integer.parseInt(arguments[5]), isPlain);
            long began = System.nanoTime();
            double[] commits = many(producer, topic, value, records, transactions, isPlain);
            double seconds = (System.nanoTime() - began) / 1e9;
            if (FAILURE.get() != null) {
                throw FAILURE.get();
            }
            Arrays.sort(commits);
            double middle = commits[commits.length / 2];
            double late = commits[(int) (commits.length * 0.99)];
            String told = "{\"seconds\": %f, \"p50_ms\": %f, \"p99_ms\": %f}";
            System.out.println(String.format(Locale.ROOT, told, seconds, middle, late));
        }
    }

    private static double[] many(
            KafkaProducer<String, byte[]> producer, String topic, byte[] value, int records, int transactions, boolean isPlain) {
        double[] commits = new double[transactions];
        for (int number = 0; number < transactions; number++) {
            if (!isPlain) {
                producer.beginTransaction();
            }
            for (int record = 0; record < records; record++) {
                String key = "key-" + (number * records + record) % KEYS;
                producer.send(new ProducerRecord<>(topic, key, value), (sent, error) -> {
                    if (error != null) {
                        FAILURE.compareAndSet(null, error);
                    }
                });
            }
            long asked = System.nanoTime();
            if (isPlain) {
                producer.flush();
            } else {
                producer.commitTransaction();
            }
            commits[number] = (System.nanoTime() - asked) / 1e6;
        }
        return commits;
    }
}
