import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own Java producer and consumers, which write down what they do (history.py says how), all in one process.
 *
 * <p>Arguments: settings as name=value for all, then a word for each client: "producer" with its name, or "group" with its
 * name and protocol (classic, consumer). On standard input, "finish" ends the producers and the consumers' slowness,
 * "stop" or the end of input ends all. On standard output each client tells its state as a line of JSON now and then.
 */
public class OrderClients {
    private static final Map<String, String> SETTINGS = new HashMap<>();
    private static volatile boolean finishing;
    private static volatile boolean stopping;

    /** One file of history. */
    private static final class Recorder implements AutoCloseable {
        private final PrintWriter file;

        Recorder(String name, String whose) {
            try {
                Path path = Path.of(SETTINGS.get("folder"), name + ".history");
                file = new PrintWriter(Files.newBufferedWriter(path, StandardOpenOption.CREATE_NEW));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            file.print(whose + "\n");
        }

        void note(String event, String rest) {
            file.print("{\"e\":\"" + event + "\",\"t\":" + nowUs() + rest + "}\n");
        }

        void flush() {
            if (file.checkError()) throw new IllegalStateException("the history cannot be written");
        }

        @Override
        public void close() {
            flush();
            file.close();
        }
    }

    /** What a client tells of itself while it runs. */
    private static final class State {
        final AtomicLong records = new AtomicLong();
        final AtomicLong failed = new AtomicLong();
        final Map<Integer, Long> ends = new ConcurrentHashMap<>();
        volatile boolean done;

        void reach(int partition, long offset) {
            ends.merge(partition, offset, Math::max);
        }

        String line(String kind, String name) {
            String reached = new TreeMap<>(ends).entrySet().stream()
                .map(end -> "\"" + end.getKey() + "\":" + end.getValue()).collect(Collectors.joining(","));
            return "{\"kind\":\"" + kind + "\",\"name\":\"" + name + "\",\"records\":" + records + ",\"failed\":" + failed
                + ",\"ends\":{" + reached + "},\"done\":" + done + "}";
        }
    }

    public static void main(String[] arguments) throws Exception {
        int place = 0;
        for (; place < arguments.length && arguments[place].contains("="); place++) {
            String[] setting = arguments[place].split("=", 2);
            SETTINGS.put(setting[0], setting[1]);
        }
        Thread commands = new Thread(OrderClients::obey, "commands");
        commands.setDaemon(true);
        commands.start();
        List<Thread> clients = new ArrayList<>();
        while (place < arguments.length) {
            boolean producer = arguments[place++].equals("producer");
            String name = arguments[place++];
            State state = new State();
            if (producer) {
                clients.add(new Thread(() -> produce(name, state), name));
            } else {
                String protocol = arguments[place++];
                for (int member = 0; member < number("members"); member++) {
                    String stem = name + "-" + member;
                    clients.add(new Thread(() -> consume(name, stem, protocol, state), stem));
                }
            }
            Thread teller = new Thread(() -> tell(producer ? "producer" : "group", name, state), name + " state");
            teller.setDaemon(true);
            teller.start();
        }
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        for (Thread client : clients) client.start();
        for (Thread client : clients) client.join();
        while (!stopping) Thread.sleep(50);
    }

    private static void obey() {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try {
            for (String line = lines.readLine(); line != null && !line.equals("stop"); line = lines.readLine()) {
                if (line.equals("finish")) finishing = true;
            }
        } catch (IOException error) {
            error.printStackTrace();
        }
        finishing = true;
        stopping = true;
    }

    private static void tell(String kind, String name, State state) {
        while (!stopping) {
            System.out.println(state.line(kind, name));
            System.out.flush();
            sleep(300);
        }
    }

    private static void produce(String name, State state) {
        Properties config = common();
        config.put("key.serializer", StringSerializer.class.getName());
        config.put("value.serializer", StringSerializer.class.getName());
        config.put("enable.idempotence", "true");
        config.put("acks", "all");
        config.put("linger.ms", "5");
        config.put("delivery.timeout.ms", "60000");
        config.put("request.timeout.ms", "15000");
        Random chance = new Random(number("seed"));
        int[] sequences = new int[number("keys")];
        String padding = " ".repeat(number("bytes"));
        try (Recorder recorder = new Recorder(name, "{\"producer\":\"" + name + "\"}")) {
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
                long began = System.nanoTime();
                for (long count = 0; !finishing; count++) {
                    long ahead = began + count * 1_000_000_000L / number("rate") - System.nanoTime();
                    if (ahead > 2_000_000) sleep(ahead / 1_000_000);
                    int chosen = chance.nextInt(sequences.length);
                    send(producer, recorder, state, name + "-" + chosen, sequences[chosen]++, count, padding);
                }
                producer.close(Duration.ofSeconds(60));
            }
            recorder.note("ended", "");
        }
        state.done = true;
    }

    private static void send(
        KafkaProducer<String, String> producer, Recorder recorder, State state, String key, int sequence, long number,
        String padding
    ) {
        long sent = nowUs();
        String record = ",\"n\":" + number + ",\"k\":\"" + key + "\",\"s\":" + sequence + ",\"sent\":" + sent;
        String value = (sequence + padding).substring(0, padding.length());
        producer.send(new ProducerRecord<>(SETTINGS.get("topic"), key, value), (RecordMetadata at, Exception error) -> {
            if (error == null) {
                long offset = at.hasOffset() ? at.offset() : -1;
                recorder.note("acked", record + ",\"p\":" + at.partition() + ",\"o\":" + offset);
                state.records.incrementAndGet();
                state.reach(at.partition(), offset);
            } else {
                boolean refused = error instanceof RecordTooLargeException || error instanceof AuthorizationException
                    || error instanceof InvalidTopicException;
                String told = ",\"error\":\"" + error.getClass().getSimpleName() + "\",\"refused\":" + refused;
                recorder.note("failed", record + told);
                state.failed.incrementAndGet();
            }
        });
    }

    /** Lives as one member after another, each of which stays for a while. */
    private static void consume(String group, String stem, String protocol, State state) {
        Random chance = new Random(stem.hashCode() + number("seed"));
        for (int life = 0; !stopping; life++) {
            int churn = (int) (Double.parseDouble(SETTINGS.get("churn_seconds")) * 1000);
            long until = System.nanoTime() + (churn + chance.nextInt(churn + 1)) * 1_000_000L;
            Member member = new Member(group, stem + "." + life, protocol, state, chance.nextBoolean());
            member.live(churn == 0 ? Long.MAX_VALUE : until);
            for (int waited = 0; waited < 1000 && !finishing; waited += 50) sleep(50);
        }
    }

    /**
     * A fault of Kafka's own new consumer (docs/limits.md): where a partition's leader changes, one of its threads may take
     * the position away while the other hands out records from there. An application would close it and begin anew, and
     * so do we; the checker counts how often.
     */
    private static final String TORN = "Cannot set a new position without a valid current position";

    /** One member of a group, from joining to leaving. */
    private static final class Member implements ConsumerRebalanceListener {
        private final String group;
        private final String name;
        private final String protocol;
        private final State state;
        private final boolean commitsAtEnd;
        private final Map<TopicPartition, OffsetAndMetadata> processed = new HashMap<>();
        private KafkaConsumer<String, String> consumer;
        private Recorder recorder;
        private boolean leaving;

        Member(String group, String name, String protocol, State state, boolean commitsAtEnd) {
            this.group = group;
            this.name = name;
            this.protocol = protocol;
            this.state = state;
            this.commitsAtEnd = commitsAtEnd;
        }

        void live(long until) {
            Properties config = common();
            config.put("key.deserializer", StringDeserializer.class.getName());
            config.put("value.deserializer", StringDeserializer.class.getName());
            config.put("group.id", group);
            config.put("group.protocol", protocol);
            config.put("enable.auto.commit", "false");
            config.put("auto.offset.reset", "earliest");
            config.put("max.poll.records", "50");
            config.put("max.partition.fetch.bytes", SETTINGS.get("fetch_bytes"));
            if (protocol.equals("classic")) config.put("session.timeout.ms", "15000");
            String whose = "{\"group\":\"" + group + "\",\"member\":\"" + name + "\"}";
            try (Recorder opened = new Recorder(name, whose)) {
                recorder = opened;
                try (KafkaConsumer<String, String> made = new KafkaConsumer<>(config)) {
                    consumer = made;
                    consumer.subscribe(List.of(SETTINGS.get("topic")), this);
                    try {
                        work(until);
                    } catch (IllegalStateException error) {
                        if (!protocol.equals("consumer") || !TORN.equals(error.getMessage())) throw error;
                        recorder.note("torn", "");
                    }
                    leaving = true;
                }
                recorder.note("ended", "");
            }
        }

        private void work(long until) {
            long nextCommit = System.nanoTime();
            while (!stopping && (finishing || System.nanoTime() < until)) {
                int count = 0;
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    process(record);
                    count++;
                }
                int rate = number("consume_rate");
                if (rate > 0 && !finishing) sleep(count * 1000L / rate);
                if (System.nanoTime() > nextCommit) {
                    commit(processed);
                    nextCommit = System.nanoTime() + 1_000_000_000L;
                }
            }
        }

        private void process(ConsumerRecord<String, String> record) {
            String sequence = record.value().substring(0, record.value().indexOf(' '));
            recorder.note("processed", ",\"p\":" + record.partition() + ",\"o\":" + record.offset() + ",\"k\":\"" + record.key()
                + "\",\"s\":" + sequence);
            processed.put(
                new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            state.records.incrementAndGet();
            state.reach(record.partition(), record.offset());
        }

        private void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
            recorder.flush();
            if (offsets.isEmpty()) return;
            Map<TopicPartition, OffsetAndMetadata> now = Map.copyOf(offsets);
            try {
                consumer.commitSync(now, Duration.ofSeconds(5));
            } catch (KafkaException error) {
                return; // it may or may not be there: whoever owns the partition next begins at one or the other
            }
            String at = now.entrySet().stream().map(entry -> "[" + entry.getKey().partition() + ","
                + entry.getValue().offset() + "]").collect(Collectors.joining(","));
            recorder.note("committed", ",\"at\":[" + at + "]");
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) recorder.note("assigned", ",\"p\":" + numbers(partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            Map<TopicPartition, OffsetAndMetadata> going = new HashMap<>(processed);
            going.keySet().retainAll(partitions);
            // Now and then a member leaves without a commit, so that the next one has to go back.
            if (!leaving || commitsAtEnd) commit(going);
            drop(partitions, false);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            drop(partitions, true);
        }

        private void drop(Collection<TopicPartition> partitions, boolean lost) {
            processed.keySet().removeAll(partitions);
            if (partitions.isEmpty()) return;
            recorder.note("revoked", ",\"p\":" + numbers(partitions) + ",\"lost\":" + lost);
            recorder.flush();
        }
    }

    private static String numbers(Collection<TopicPartition> partitions) {
        return Arrays.toString(partitions.stream().mapToInt(TopicPartition::partition).sorted().toArray());
    }

    private static Properties common() {
        Properties config = new Properties();
        config.put("bootstrap.servers", SETTINGS.get("bootstrap"));
        config.put("metadata.max.age.ms", "1000");
        config.put("metadata.recovery.strategy", "rebootstrap");
        config.put("metadata.recovery.rebootstrap.trigger.ms", "10000");
        return config;
    }

    private static int number(String setting) {
        return Integer.parseInt(SETTINGS.get(setting));
    }

    private static long nowUs() {
        return System.nanoTime() / 1000;
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
