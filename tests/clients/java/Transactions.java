import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's transactional producer, or a reader of what such producers write; see kordon.testing.order.transact. */
public class Transactions {
    private static final Map<String, String> TASK = new HashMap<>();
    private static PrintWriter history;
    private static volatile boolean finishing;
    private static KafkaProducer<String, String> producer;

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) TASK.put(argument.split("=", 2)[0], argument.split("=", 2)[1]);
        if (TASK.get("role").equals("write")) write();
        else read();
        history.flush();
    }

    private static int number(String name) {
        return Integer.parseInt(TASK.get(name));
    }

    private static Properties common() {
        Properties config = new Properties();
        config.put("bootstrap.servers", TASK.get("bootstrap"));
        config.put("metadata.max.age.ms", "1000");
        config.put("metadata.recovery.strategy", "rebootstrap");  // is the default since 4.0
        return config;
    }

    private static void open(String name, String whose) throws IOException {
        Path path = Path.of(TASK.get("folder"), name + ".history");
        history = new PrintWriter(Files.newBufferedWriter(path, StandardOpenOption.CREATE_NEW));
        history.print(whose + "\n");
        history.flush();
    }

    /** Writes a line of the history; what may be killed next is flushed first. */
    private static synchronized void note(String event, String rest, boolean flush) {
        history.print("{\"e\":\"" + event + "\",\"t\":" + System.nanoTime() / 1000 + rest + "}\n");
        if (flush) history.flush();
    }

    private static void trouble(String kind, Exception error) {
        note("trouble", ",\"kind\":\"" + kind + "\",\"error\":\"" + error.getClass().getSimpleName() + "\"", true);
    }

    private static void write() throws Exception {
        Thread orders = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (IOException error) {
                error.printStackTrace();
            }
            finishing = true;
        });
        orders.setDaemon(true);
        orders.start();
        open(TASK.get("name") + "." + number("life"), "{\"producer\":\"" + TASK.get("name") + "\"}");
        Random chance = new Random(number("seed") * 1000L + number("life"));
        int sent = number("life") * 20_000;
        int transaction = number("life") * 100_000;
        int[] sequences = IntStream.range(0, number("keys")).map(key -> number("life") * 20_000).toArray();
        producer = start();
        while (!finishing) {
            List<String[]> records = new ArrayList<>();
            for (int count = 1 + chance.nextInt(8); count > 0; count--) {
                int key = chance.nextInt(sequences.length);
                records.add(new String[] {TASK.get("name") + "-" + key, String.valueOf(sequences[key]++)});
            }
            String told = records.stream().map(r -> "[\"" + r[0] + "\"," + r[1] + "]").collect(Collectors.joining(","));
            note("begun", ",\"x\":" + transaction + ",\"n\":" + sent + ",\"r\":[" + told + "]", true);
            boolean commits = chance.nextInt(100) >= number("aborted_percent");
            int heldMs = chance.nextInt(100) < number("held_percent") ? number("held_ms") : 0;
            String outcome = transact(transaction, sent, records, commits, heldMs);
            note("over", ",\"x\":" + transaction++ + ",\"outcome\":\"" + outcome + "\"", true);
            sent += records.size();
            Thread.sleep(number("pause_ms"));
        }
        producer.close();
    }

    /** Returns a producer that has ended what its predecessor left open. */
    private static KafkaProducer<String, String> start() throws InterruptedException {
        Properties config = common();
        config.put("transactional.id", TASK.get("name"));
        config.put("transaction.timeout.ms", "30000");
        config.put("max.block.ms", "30000");
        config.put("key.serializer", StringSerializer.class.getName());
        config.put("value.serializer", StringSerializer.class.getName());
        while (true) {
            KafkaProducer<String, String> made = new KafkaProducer<>(config);
            try {
                made.initTransactions();
                return made;
            } catch (KafkaException error) {
                trouble("retriable", error);
                made.close(Duration.ZERO);
                Thread.sleep(100);
            }
        }
    }

    /** Does a transaction, and what its errors ask for; returns what came of it. */
    private static String transact(int transaction, int first, List<String[]> records, boolean commits, int heldMs)
            throws InterruptedException {
        boolean committing = false;
        try {
            producer.beginTransaction();
            for (int place = 0; place < records.size(); place++) {
                String[] record = records.get(place);
                int number = first + place;
                if (place == 1) Thread.sleep(heldMs);
                ProducerRecord<String, String> wanted =
                    new ProducerRecord<>(TASK.get("topic"), record[0], record[1] + " of a transaction");
                producer.send(wanted, (at, error) -> answered(number, record, at, error));
            }
            producer.flush();
            note("ending", ",\"x\":" + transaction + ",\"commits\":" + commits, true);
            committing = commits;
            if (commits) commit();
            else producer.abortTransaction();
            return commits ? "committed" : "aborted";
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException
                | UnsupportedVersionException | IllegalStateException error) {
            trouble("fatal", error);
        } catch (KafkaException error) {
            trouble("abortable", error);
            try {
                producer.abortTransaction();
                return "aborted";
            } catch (KafkaException | IllegalStateException worse) {
                trouble("fatal", worse);
            }
        }
        producer.close(Duration.ZERO);
        producer = start();
        return committing ? "unknown" : "aborted";
    }

    private static void commit() throws InterruptedException {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (RetriableException error) {
                trouble("retriable", error);
            }
        }
    }

    private static void answered(int number, String[] record, RecordMetadata at, Exception error) {
        if (error != null || !at.hasOffset()) return;
        note("acked", ",\"n\":" + number + ",\"k\":\"" + record[0] + "\",\"s\":" + record[1] + ",\"sent\":0,\"p\":"
            + at.partition() + ",\"o\":" + at.offset(), false);
    }

    private static void read() throws IOException {
        Properties config = common();
        config.put("isolation.level", TASK.get("isolation"));
        config.put("auto.offset.reset", "none");
        config.put("fetch.max.wait.ms", "100");
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        String name = TASK.get("name");
        open(name, "{\"group\":\"" + name + "\",\"member\":\"" + name + "\",\"isolation\":\"" + TASK.get("isolation") + "\"}");
        Set<Integer> open = IntStream.range(0, number("partitions")).boxed().collect(Collectors.toCollection(HashSet::new));
        note("assigned", ",\"p\":" + open, true);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            consumer.assign(open.stream().map(each -> new TopicPartition(TASK.get("topic"), each)).toList());
            consumer.seekToBeginning(consumer.assignment());
            while (!open.isEmpty()) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    note("processed", ",\"p\":" + record.partition() + ",\"o\":" + record.offset() + ",\"k\":\"" + record.key()
                        + "\",\"s\":" + record.value().split(" ")[0], true);
                    if (record.key().startsWith("last-")) open.remove(record.partition());
                }
            }
        }
        note("ended", "", true);
    }
}
