import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of share groups, which come and go as they are told, and say what they are given and what they make of it.
 *
 * <p>The argument is the bootstrap address. Lines of standard input are commands, their words separated by blanks:
 *
 * <pre>
 * join MEMBER TOPICS name=value ...   with settings of the consumer, group.id among them
 * leave MEMBER                        closes it
 * </pre>
 *
 * TOPICS are names separated by commas. A record whose value begins with "release" is released at its first delivery, one
 * that begins with "reject" is rejected, and all others are accepted. The end of input ends all. On standard output:
 * "MEMBER joining", "MEMBER given TOPIC-PARTITION OFFSET DELIVERY KEY VALUE", "MEMBER acknowledged TOPIC-PARTITION
 * OFFSETS ERROR", "MEMBER failed class: message", "MEMBER left".
 */
public class ShareMembers {
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    private static synchronized void say(String name, String what) {
        System.out.println(name + " " + what);
        System.out.flush();
    }

    private static final class Member extends Thread {
        private final String name;
        private final KafkaShareConsumer<String, String> consumer;
        private volatile boolean leaving;

        Member(String name, String topics, Properties settings) {
            this.name = name;
            this.consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach((partition, those) ->
                say(name, "acknowledged " + partition.topicPartition() + " "
                    + those.stream().sorted().map(String::valueOf).collect(Collectors.joining(",")) + " "
                    + (error == null ? "none" : error.getClass().getSimpleName()))));
            consumer.subscribe(List.of(topics.split(",")));
        }

        @Override
        public void run() {
            try (consumer) {
                while (!leaving) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) handle(record);
                }
            } catch (RuntimeException error) {
                say(name, "failed " + error.getClass().getSimpleName() + ": " + error.getMessage());
            }
            say(name, "left");
        }

        private void handle(ConsumerRecord<String, String> record) {
            int delivery = record.deliveryCount().orElse((short) 0);
            say(name, "given " + record.topic() + "-" + record.partition() + " " + record.offset() + " " + delivery + " "
                + record.key() + " " + record.value());
            AcknowledgeType type = AcknowledgeType.ACCEPT;
            if (record.value().startsWith("release") && delivery < 2) type = AcknowledgeType.RELEASE;
            if (record.value().startsWith("reject")) type = AcknowledgeType.REJECT;
            consumer.acknowledge(record, type);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("leave")) {
                MEMBERS.get(words[1]).leaving = true;
                continue;
            }
            Properties settings = new Properties();
            settings.put("bootstrap.servers", arguments[0]);
            settings.put("share.acknowledgement.mode", "explicit");
            for (int at = 3; at < words.length; at++) {
                String[] setting = words[at].split("=", 2);
                settings.put(setting[0], setting[1]);
            }
            say(words[1], "joining");
            Member member = new Member(words[1], words[2], settings);
            MEMBERS.put(words[1], member);
            member.start();
        }
        for (Member member : MEMBERS.values()) member.leaving = true;
        for (Member member : MEMBERS.values()) member.join();
    }
}
