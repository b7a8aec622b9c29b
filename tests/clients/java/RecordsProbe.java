import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Kafka's Java producer and consumer, driven by lines on standard input, as AdminProbe is. A value is given as a word and the number of
 * its repetitions, since values of ten megabytes are too long for a line.
 */
public class RecordsProbe {
    private static final int BYTES_MAX = 12_000_000;
    private static final Duration LIMIT = Duration.ofSeconds(20);
    private static final Map<String, RecordsProbe> PROBES = new HashMap<>();
    private final String bootstrap;
    private final KafkaConsumer<String, String> consumer;

    private RecordsProbe(String bootstrap) {
        this.bootstrap = bootstrap;
        consumer = new KafkaConsumer<>(
                Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false, "max.partition.fetch.bytes", BYTES_MAX, "auto.offset.reset", "none"),
                new StringDeserializer(), new StringDeserializer());
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split("\t", -1)));
            System.out.flush();
        }
    }

    private static String answer(String[] words) {
        try {
            return "ok\t" + act(words);
        } catch (Exception error) {
            return "error\t" + error.getClass().getSimpleName() + "\t" + String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
        }
    }

    private static String act(String[] words) throws Exception {
        if (words[0].equals("open")) {
            PROBES.put(words[1], new RecordsProbe(words[2]));
            return "";
        }
        RecordsProbe probe = PROBES.get(words[1]);
        switch (words[0]) {
            case "produce":
                return probe.produce(words);
            case "consume":
                return probe.consume(words[2], Long.parseLong(words[3]), Integer.parseInt(words[4]));
            case "offset_at": {
                var at = new TopicPartition(words[2], 0);
                var found = probe.consumer.offsetsForTimes(Map.of(at, Long.parseLong(words[3]))).get(at);
                return String.valueOf(found == null ? -1 : found.offset());
            }
            case "bounds": {
                var at = new TopicPartition(words[2], 0);
                return probe.consumer.beginningOffsets(List.of(at)).get(at) + "\t" + probe.consumer.endOffsets(List.of(at)).get(at);
            }
            case "pausing":
                return probe.pausing(words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            case "after_end":
                return probe.afterEnd(words[2], words[3]);
            case "close":
                PROBES.remove(words[1]).consumer.close();
                return "";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String produce(String[] words) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap, "compression.type", words[3], "enable.idempotence", words[4].equals("true"),
                "acks", "all", "linger.ms", 5, "max.request.size", BYTES_MAX));
        StringJoiner offsets = new StringJoiner("\t");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int at = 5; at + 2 < words.length; at += 3) {
                byte[] value = words[at].repeat(Integer.parseInt(words[at + 1])).getBytes(StandardCharsets.UTF_8);
                long timestamp = Long.parseLong(words[at + 2]);
                sent.add(producer.send(new ProducerRecord<>(words[2], 0, timestamp < 0 ? null : timestamp, null, value)));
            }
            for (Future<RecordMetadata> one : sent) offsets.add(String.valueOf(one.get().offset()));
        }
        return offsets.toString();
    }

    private TopicPartition at(String topic, long start) {
        var partition = new TopicPartition(topic, 0);
        consumer.assign(List.of(partition));
        if (start == -2) consumer.seekToBeginning(List.of(partition));
        else if (start == -1) consumer.seekToEnd(List.of(partition));
        else consumer.seek(partition, start);
        return partition;
    }

    private String consume(String topic, long start, int count) {
        at(topic, start);
        StringJoiner read = new StringJoiner("\t");
        long until = System.nanoTime() + LIMIT.toNanos();
        for (int seen = 0; seen < count; ) {
            if (System.nanoTime() > until) throw new IllegalStateException("only " + seen + " of " + count);
            for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofSeconds(1))) {
                if (++seen > count) break;
                boolean even = one.value().chars().allMatch(letter -> letter == one.value().charAt(0));
                read.add(one.offset() + "\t" + (even ? one.value().substring(0, 1) + "\t" + one.value().length() : one.value() + "\t1"));
            }
        }
        return read.toString();
    }

    private String afterEnd(String topic, String value) throws Exception {
        consumer.position(at(topic, -1));
        produce(new String[] {"produce", "", topic, "none", "false", value, "1", "-1"});
        long until = System.nanoTime() + LIMIT.toNanos();
        while (System.nanoTime() < until) {
            for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofSeconds(1))) return one.offset() + "\t" + one.value();
        }
        throw new IllegalStateException("nothing came");
    }

    private String pausing(String topic, int count, int millis) {
        var partition = at(topic, -2);
        consumer.pause(List.of(partition));
        int paused = consumer.poll(Duration.ofMillis(millis)).count();
        consumer.resume(List.of(partition));
        int resumed = 0;
        long until = System.nanoTime() + LIMIT.toNanos();
        while (resumed < count && System.nanoTime() < until) resumed += consumer.poll(Duration.ofSeconds(1)).count();
        return paused + "\t" + resumed;
    }
}
