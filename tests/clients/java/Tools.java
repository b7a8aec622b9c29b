import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in this JVM, as their scripts run them. A line has the class of a tool, its
 * standard input and its arguments, in Base64; the reply has the exit code and the output. To start a JVM takes longer than most tools
 * run.
 */
public class Tools {
    private static final List<Runnable> ENDINGS = new ArrayList<>();

    /** The first exit code of the tool: some tools catch the exception that stands for their exit, and exit with another code. */
    private static volatile Integer exitCode;

    private static final class Exited extends RuntimeException {
        Exited() {
            super("exited", null, false, false);
        }
    }

    private static void exited(int code) {
        if (exitCode == null) {
            exitCode = code;
        }
        throw new Exited();
    }

    public static void main(String[] nothing) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> exited(code));
        Exit.setHaltProcedure((code, message) -> exited(code));
        Exit.setShutdownHookAdder((name, hook) -> ENDINGS.add(hook));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = Arrays.stream(line.split(" ", -1)).map(Tools::decoded).toArray(String[]::new);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            int code = run(words[0], words[1], Arrays.copyOfRange(words, 2, words.length), out, err);
            answers.println(code + " " + encoded(out) + " " + encoded(err));
            answers.flush();
        }
    }

    private static int run(String tool, String input, String[] arguments, ByteArrayOutputStream out, ByteArrayOutputStream err) throws Exception {
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        exitCode = null;
        try {
            Class<?> program = Class.forName(tool);
            forgetCount(program);
            ENDINGS.clear();
            program.getMethod("main", String[].class).invoke(null, (Object) arguments);
            ENDINGS.forEach(Runnable::run);
            return exitCode == null ? 0 : exitCode;
        } catch (InvocationTargetException failed) {
            if (exitCode != null) {
                return exitCode;
            }
            failed.getCause().printStackTrace();
            return 1;
        } finally {
            System.out.flush();
            System.err.flush();
        }
    }

    /** Resets the static field in which the console consumer counts records for --max-messages. */
    private static void forgetCount(Class<?> program) throws IllegalAccessException {
        try {
            Field count = program.getDeclaredField("messageCount");
            count.setAccessible(true);
            count.setInt(null, 0);
        } catch (NoSuchFieldException none) {
            // any other program
        }
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream bytes) throws IOException {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
