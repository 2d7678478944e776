import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of consumer groups, which come and go as they are told, and say what they are assigned.
 *
 * <p>The argument is the bootstrap address. Lines of standard input are commands, their words separated by blanks:
 *
 * <pre>
 * join MEMBER TOPICS name=value ...   with settings of the consumer, group.id among them
 * leave MEMBER                        closes it; static members stay in their group
 * </pre>
 *
 * TOPICS are names separated by commas, an expression for the client between slashes, or one for the broker after "re2j:".
 * The end of input ends all. On standard output: "MEMBER joining", "MEMBER assigned topic-0,...", "MEMBER revoked ...",
 * "MEMBER lost ...", "MEMBER read COUNT" now and then, "MEMBER failed class: message", "MEMBER left".
 */
public class Members {
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    private static synchronized void say(String name, String what) {
        System.out.println(name + " " + what);
        System.out.flush();
    }

    private static String named(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString).sorted().collect(Collectors.joining(","));
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final String name;
        private final KafkaConsumer<String, String> consumer;
        private volatile boolean leaving;

        Member(String name, String topics, Properties settings) {
            this.name = name;
            this.consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            if (topics.startsWith("re2j:")) {
                consumer.subscribe(new SubscriptionPattern(topics.substring("re2j:".length())), this);
            } else if (topics.startsWith("/")) {
                consumer.subscribe(java.util.regex.Pattern.compile(topics.substring(1, topics.length() - 1)), this);
            } else {
                consumer.subscribe(List.of(topics.split(",")), this);
            }
        }

        @Override
        public void run() {
            long read = 0;
            long said = 0;
            try (consumer) {
                while (!leaving) {
                    read += consumer.poll(Duration.ofMillis(200)).count();
                    if (read != said) say(name, "read " + (said = read));
                }
            } catch (KafkaException error) {
                say(name, "failed " + error.getClass().getSimpleName() + ": " + error.getMessage());
            }
            say(name, "left");
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            say(name, "assigned " + named(partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            say(name, "revoked " + named(partitions));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            say(name, "lost " + named(partitions));
        }
    }

    private static void join(String bootstrap, String[] words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "earliest");
        for (int i = 3; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Member member = new Member(words[1], words[2], settings);
        MEMBERS.put(words[1], member);
        say(words[1], "joining");
        member.start();
    }

    private static void leave(String name) throws InterruptedException {
        Member member = MEMBERS.remove(name);
        member.leaving = true;
        member.join();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.trim().split(" +");
            try {
                if (words[0].equals("join")) join(arguments[0], words);
                else leave(words[1]);
            } catch (KafkaException error) {
                say(words[1], "failed " + error.getClass().getSimpleName() + ": " + error.getMessage());
            }
        }
        for (Member member : MEMBERS.values()) member.leaving = true;
        for (Member member : MEMBERS.values()) member.join();
    }
}
