import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileReader;
import java.nio.ByteBuffer;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Prints, for each line "class version json" of a file, the message's bytes by Kafka's own serializer, in hex. */
public class KafkaBytes {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        StringBuilder out = new StringBuilder();
        try (BufferedReader lines = new BufferedReader(new FileReader(args[0]))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split(" ", 3);
                short version = Short.parseShort(parts[1]);
                JsonNode json = mapper.readTree(parts[2]);
                Message message = (Message) Class.forName(parts[0] + "JsonConverter")
                    .getMethod("read", JsonNode.class, short.class).invoke(null, json, version);
                ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
                byte[] first = new byte[buffer.remaining()];
                buffer.duplicate().get(first);
                Message again = (Message) Class.forName(parts[0]).getDeclaredConstructor().newInstance();
                again.read(new ByteBufferAccessor(ByteBuffer.wrap(first)), version);
                if (!again.equals(message)) throw new IllegalStateException("does not read back: " + line);
                for (byte b : first) out.append(String.format("%02x", b));
                out.append('\n');
            }
        }
        System.out.print(out);
    }
}
