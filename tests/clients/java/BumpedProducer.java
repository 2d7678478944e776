import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional producer writes a transaction for each line that it reads, and tries again after an error.
 *
 * <p>Arguments: the bootstrap address, a topic, a transactional id, and how often it tries. Each line has the values of
 * the records, separated by spaces. Prints what comes of each attempt: "committed", or "aborted", or "dead" where the
 * producer can do nothing more. The classes of the error and of its causes follow. Before that it prints
 * "unacknowledged" for each record that was not acknowledged in time.
 */
public class BumpedProducer {
    private static String words(Throwable error) {
        StringBuilder found = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            found.append(' ').append(each.getClass().getSimpleName());
        }
        return found.toString();
    }

    private static String attempt(KafkaProducer<String, String> producer, String topic, String[] values) {
        try {
            producer.beginTransaction();
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String value : values) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, value), (told, error) -> {
                    if (error instanceof TimeoutException) {
                        System.out.println("unacknowledged");
                    }
                }));
            }
            producer.commitTransaction();
            return "committed";
        } catch (KafkaException error) {
            try {
                producer.abortTransaction();
                return "aborted" + words(error);
            } catch (KafkaException fatal) {
                return "dead" + words(error);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", arguments[2]);
        settings.put("metadata.max.age.ms", "500");
        settings.put("delivery.timeout.ms", "3000");
        settings.put("request.timeout.ms", "2900");
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            System.out.println("ready");
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                for (int n = 0; n < Integer.parseInt(arguments[3]); n++) {
                    String found = attempt(producer, arguments[1], line.split(" "));
                    System.out.println(found);
                    if (found.equals("committed") || found.startsWith("dead")) {
                        break;
                    }
                }
                System.out.println("done");
            }
        }
    }
}
