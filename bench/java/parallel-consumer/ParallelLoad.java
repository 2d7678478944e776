import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A group of Confluent's Parallel Consumer, in the order of keys; tells ten times a second what it has handled.
 *
 * <p>Arguments: bootstrap servers, topic (and name of the group), records at a time, milliseconds of a handler, and the
 * key whose handler does not end between the lines "block" and "go on" on standard input. The end of that ends it.
 */
public class ParallelLoad {
    private static final AtomicLong RECORDS = new AtomicLong();
    private static final AtomicLong OTHERS = new AtomicLong();
    private static final AtomicLong INVERSIONS = new AtomicLong();
    private static final AtomicLong REPEATS = new AtomicLong();
    private static final Set<Long> SEEN = ConcurrentHashMap.newKeySet();
    private static final ConcurrentHashMap<String, Long> BEGUN = new ConcurrentHashMap<>();
    private static volatile boolean isBlocked = false;

    public static void main(String[] arguments) throws Exception {
        long milliseconds = Long.parseLong(arguments[3]);
        String blocked = arguments[4];
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("group.id", arguments[1]);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        var options = ParallelConsumerOptions.<String, String>builder()
                .ordering(ProcessingOrder.KEY)
                .maxConcurrency(Integer.parseInt(arguments[2]))
                .consumer(consumer)
                .build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(arguments[1]));
        processor.poll(context -> handle(context.key(), Long.parseLong(context.value()), milliseconds, blocked));
        var telling = new Thread(ParallelLoad::tell);
        telling.setDaemon(true);
        telling.start();
        var orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            isBlocked = order.equals("block");
        }
        System.exit(0);
    }

    private static void handle(String key, long number, long milliseconds, String blocked) {
        if (SEEN.add(number)) {
            BEGUN.merge(key, number, (before, now) -> {
                if (now < before) {
                    INVERSIONS.incrementAndGet();
                }
                return Math.max(before, now);
            });
        } else {
            REPEATS.incrementAndGet();
        }
        RECORDS.incrementAndGet();
        if (!key.equals(blocked)) {
            OTHERS.incrementAndGet();
        }
        try {
            Thread.sleep(milliseconds);
            while (isBlocked && key.equals(blocked)) {
                Thread.sleep(milliseconds);
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static void tell() {
        String form = "{\"records\": %d, \"others\": %d, \"inversions\": %d, \"repeats\": %d}";
        while (true) {
            Object[] counts = {RECORDS.get(), OTHERS.get(), INVERSIONS.get(), REPEATS.get()};
            System.out.println(String.format(Locale.ROOT, form, counts));
            try {
                Thread.sleep(100);
            } catch (InterruptedException error) {
                return;
            }
        }
    }
}
