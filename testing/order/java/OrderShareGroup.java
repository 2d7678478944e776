import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A group of Java's share consumers, which write down what they have in hand (cooperative.py says how), in one process.
 *
 * <p>Arguments: settings as name=value, then the group's name. A record counts as started when poll returns it, with all
 * that comes at once: it is in hand from then on. It is finished when its handler is, and is acknowledged after that.
 * Members come and go; one that goes leaves what it has not handled to others. Now and then a record is released.
 */
public class OrderShareGroup {
    private static final Map<String, String> SETTINGS = new HashMap<>();
    private static final AtomicLong RECORDS = new AtomicLong();
    private static final Map<Integer, Long> ENDS = new ConcurrentHashMap<>();
    private static volatile boolean finishing;
    private static volatile boolean stopping;

    public static void main(String[] arguments) throws Exception {
        for (int place = 0; place < arguments.length - 1; place++) {
            String[] setting = arguments[place].split("=", 2);
            SETTINGS.put(setting[0], setting[1]);
        }
        String group = arguments[arguments.length - 1];
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        start("commands", true, OrderShareGroup::obey);
        start("state", true, () -> tell(group));
        List<Thread> members = new ArrayList<>();
        for (int member = 0; member < number("members"); member++) {
            String stem = group + "-" + member;
            members.add(start(stem, false, () -> comeAndGo(group, stem)));
        }
        for (Thread member : members) member.join();
        System.out.println(state(group));
    }

    private static Thread start(String name, boolean isDaemon, Runnable what) {
        Thread thread = new Thread(what, name);
        thread.setDaemon(isDaemon);
        thread.start();
        return thread;
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

    private static String state(String group) {
        String reached = new TreeMap<>(ENDS).entrySet().stream()
            .map(end -> "\"" + end.getKey() + "\":" + end.getValue()).collect(Collectors.joining(","));
        return "{\"kind\":\"group\",\"name\":\"" + group + "\",\"records\":" + RECORDS + ",\"failed\":0,\"ends\":{" + reached
            + "},\"done\":false}";
    }

    private static void tell(String group) {
        while (!stopping) {
            System.out.println(state(group));
            System.out.flush();
            sleep(300);
        }
    }

    private static void comeAndGo(String group, String stem) {
        Random chance = new Random(stem.hashCode() + number("seed"));
        for (int life = 0; !stopping; life++) {
            int churn = (int) (Double.parseDouble(SETTINGS.get("churn_seconds")) * 1000);
            long until = System.nanoTime() + (churn + chance.nextInt(churn + 1)) * 1_000_000L;
            try (Member member = new Member(group, stem + "." + life, chance)) {
                member.work(churn == 0 ? Long.MAX_VALUE : until);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
            for (int waited = 0; waited < 500 && !finishing; waited += 50) sleep(50);
        }
    }

    /** One member, from joining to leaving. */
    private static final class Member implements AutoCloseable {
        private final KafkaShareConsumer<String, String> consumer;
        private final PrintWriter history;
        private final Random chance;

        Member(String group, String name, Random chance) throws IOException {
            this.chance = chance;
            Properties config = new Properties();
            config.put("bootstrap.servers", SETTINGS.get("bootstrap"));
            config.put("metadata.max.age.ms", "1000");
            config.put("group.id", group);
            config.put("share.acknowledgement.mode", "explicit");
            config.put("max.poll.records", "50");
            Path path = Path.of(SETTINGS.get("folder"), name + ".cooperative");
            history = new PrintWriter(Files.newBufferedWriter(path, StandardOpenOption.CREATE_NEW));
            consumer = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(SETTINGS.get("topic")));
        }

        void work(long until) {
            while (!stopping && (finishing || System.nanoTime() < until)) {
                List<ConsumerRecord<String, String>> given = new ArrayList<>();
                consumer.poll(Duration.ofMillis(200)).forEach(given::add);
                for (ConsumerRecord<String, String> record : given) note("started", record);
                for (ConsumerRecord<String, String> record : given) handle(record);
            }
        }

        private void handle(ConsumerRecord<String, String> record) {
            if (chance.nextInt(10) == 0) sleep(chance.nextInt(20));
            boolean fails = chance.nextInt(100) < 2;
            note(fails ? "failed" : "finished", record);
            consumer.acknowledge(record, fails ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
            if (fails) return;
            RECORDS.incrementAndGet();
            ENDS.merge(record.partition(), record.offset(), Math::max);
        }

        private void note(String event, ConsumerRecord<String, String> record) {
            String sequence = record.value().substring(0, record.value().indexOf(' '));
            history.print("{\"e\":\"" + event + "\",\"t\":" + System.nanoTime() / 1000 + ",\"p\":" + record.partition() + ",\"o\":"
                + record.offset() + ",\"k\":\"" + record.key() + "\",\"s\":" + sequence + "}\n");
            if (history.checkError()) throw new IllegalStateException("the history cannot be written");
        }

        @Override
        public void close() {
            consumer.close(Duration.ofSeconds(20));
            history.close();
        }
    }

    private static int number(String setting) {
        return Integer.parseInt(SETTINGS.get(setting));
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
