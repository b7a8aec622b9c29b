import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** A producer by Kafka's Java client, with the commands and events of tests/clients/programs/producer.py. */
public class ProducerProbe {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static volatile boolean finishing = false;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonNode settings = JSON.readTree(in.readLine());
        Thread sender = new Thread(() -> send(settings));
        sender.start();
        in.readLine();
        finishing = true;
        sender.join();
        say("finished", Map.of());
        in.readLine();
        Runtime.getRuntime().halt(0);
    }

    private static void send(JsonNode settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", settings.get("bootstrap").asText());
        config.put("client.id", settings.get("name").asText());
        config.put("linger.ms", 2);
        config.put("reconnect.backoff.max.ms", 500);
        String topic = settings.get("topic").asText();
        int partitions = settings.get("partitions").asInt();
        long pause = Math.round(settings.get("pause_seconds").asDouble() * 1000);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            say("started", Map.of());
            for (int number = 0; !finishing; number++) {
                String value = "java-" + number;
                producer.send(new ProducerRecord<>(topic, number % partitions, null, value), (stored, error) -> {
                    if (error == null) say("stored", Map.of("value", value, "partition", stored.partition(), "offset", stored.offset()));
                    else say("refused", Map.of("value", value, "text", String.valueOf(error)));
                });
                Thread.sleep(pause);
            }
            producer.flush();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void say(String event, Map<String, ?> more) {
        Map<String, Object> line = new TreeMap<>(more);
        line.put("event", event);
        line.put("at", System.currentTimeMillis() / 1000.0);
        try {
            String written = JSON.writeValueAsString(line);
            synchronized (System.out) {
                System.out.println(written);
                System.out.flush();
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
