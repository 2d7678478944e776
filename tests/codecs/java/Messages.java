import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Reads messages by Kafka's own classes and writes them again.
 *
 * <p>A line of input is api key, "Request" or "Response", version, and the body in hexadecimal digits. It is answered by
 * the body as Kafka writes it, or by what Kafka has against it.
 */
public class Messages {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split(" ", -1)));
        }
    }

    private static String answer(String[] words) {
        try {
            ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[0]));
            ApiMessage message = words[1].equals("Request") ? type.newRequest() : type.newResponse();
            short version = Short.parseShort(words[2]);
            ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
            message.read(new ByteBufferAccessor(body), version);
            if (body.hasRemaining()) {
                return body.remaining() + " bytes are left";
            }
            ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[written.remaining()];
            written.get(bytes);
            return HexFormat.of().formatHex(bytes);
        } catch (Exception error) {
            return error.toString();
        }
    }
}
