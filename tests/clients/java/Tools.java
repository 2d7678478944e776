import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs many of Kafka's tools one after the other in one process, which saves a JVM start for each.
 *
 * <p>Reads lines of base64 fields separated by spaces: class, standard input, arguments. Answers each with a line of exit
 * code and base64 of what the tool wrote. The tools are Kafka's own, called by their main method; only the end of the
 * process is held back, which Kafka's {@link Exit} is made for.
 */
public class Tools {
    private static final class Ended extends Error {
        final int code;

        Ended(int code) {
            super("exit " + code);
            this.code = code;
        }
    }

    /** Takes what the tool writes, until it ends; what its handlers say of the way we end it is not heard. */
    private static final class Ear extends ByteArrayOutputStream {
        volatile boolean open;

        @Override
        public synchronized void write(int one) {
            if (open) super.write(one);
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int length) {
            if (open) super.write(bytes, from, length);
        }
    }

    private static final Ear EAR = new Ear();
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static int firstCode;

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        // Set once: some tools keep the stream they have first seen.
        PrintStream heard = new PrintStream(EAR, true, StandardCharsets.UTF_8);
        System.setOut(heard);
        System.setErr(heard);
        Exit.Procedure end = (code, message) -> {
            if (firstCode < 0) firstCode = code;
            EAR.open = false;
            throw new Ended(code);
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] fields = Arrays.stream(line.split(" ")).map(Tools::decode).toArray(String[]::new);
            int code = run(fields);
            answers.println(code + " " + Base64.getEncoder().encodeToString(EAR.toByteArray()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String decode(String field) {
        return new String(Base64.getDecoder().decode(field.substring(1)), StandardCharsets.UTF_8);
    }

    private static int run(String[] fields) {
        System.setIn(new ByteArrayInputStream(fields[1].getBytes(StandardCharsets.UTF_8)));
        firstCode = -1;
        HOOKS.clear();
        EAR.reset();
        EAR.open = true;
        int code = 0;
        try {
            String[] arguments = Arrays.copyOfRange(fields, 2, fields.length);
            Class.forName(fields[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                System.out.println(error.getCause());
                code = 1;
            }
        } catch (ReflectiveOperationException error) {
            System.out.println(error);
            code = 1;
        }
        EAR.open = true;
        for (Runnable hook : HOOKS) {
            try {
                hook.run();
            } catch (Ended ended) {
                EAR.open = true;
            }
        }
        return firstCode < 0 ? code : firstCode;
    }
}
