import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A consumer of Kafka's reads a topic again and again while the leaders of its partitions move.
 *
 * <p>Arguments: the bootstrap address, a topic to make, the group protocol, and for how many seconds at most. Prints
 * "torn MOVES POLLS" when a poll has thrown that a position cannot be set, else "whole MOVES POLLS".
 */
public class LeaderMoves {
    private static final String TORN = "Cannot set a new position without a valid current position";
    private static String topic;
    private static final int PARTITIONS = 12;
    private static final int RECORDS = 1_000_000;
    private static final AtomicInteger MOVES = new AtomicInteger();
    private static volatile boolean ended;

    private static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("metadata.max.age.ms", "200");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return settings;
    }

    private static void write(Properties settings) {
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (int n = 0; n < RECORDS; n++) {
                producer.send(new ProducerRecord<>(topic, n % PARTITIONS, null, new byte[10]));
            }
        }
    }

    /** Has the partitions' leaders move from broker to broker, all of them each time. */
    private static void move(Admin admin) {
        for (int turn = 0; !ended; turn++) {
            Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = new HashMap<>();
            for (int p = 0; p < PARTITIONS; p++) {
                List<Integer> replicas = new ArrayList<>();
                for (int n = 0; n < 3; n++) replicas.add((p + turn + n) % 3 + 1);
                wanted.put(new TopicPartition(topic, p), Optional.of(new NewPartitionReassignment(replicas)));
            }
            try {
                admin.alterPartitionReassignments(wanted).all().get();
                admin.electLeaders(ElectionType.PREFERRED, Set.copyOf(wanted.keySet())).all().get();
            } catch (ExecutionException | InterruptedException refused) {
                // a replica was behind, or leads already: the next turn asks for another
            }
            MOVES.addAndGet(PARTITIONS);
        }
    }

    private static String read(Properties settings, long until) {
        long polls = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            long read = 0;
            while (System.nanoTime() < until) {
                int count = consumer.poll(Duration.ofMillis(100)).count();
                polls++;
                read += count;
                if (read >= RECORDS) {
                    consumer.seekToBeginning(consumer.assignment());
                    read = 0;
                }
            }
        } catch (IllegalStateException error) {
            if (!TORN.equals(error.getMessage())) throw error;
            return "torn " + MOVES + " " + polls;
        }
        return "whole " + MOVES + " " + polls;
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = settings(arguments[0]);
        topic = arguments[1];
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 3))).all().get();
            write(settings);
            Thread mover = new Thread(() -> move(admin));
            mover.setDaemon(true);
            mover.start();
            settings.put("group.id", topic);
            settings.put("group.protocol", arguments[2]);
            settings.put("auto.offset.reset", "earliest");
            settings.put("max.poll.records", "5000");
            System.out.println(read(settings, System.nanoTime() + Long.parseLong(arguments[3]) * 1_000_000_000L));
            ended = true;
        }
    }
}
