import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's Java clients, driven by lines on standard input: a command, the name of an admin client, and arguments, separated by tabs.
 * The reply to a line is one line: "ok" and the result, or "error", the exception's class and its message. One JVM serves many tests.
 */
public class AdminProbe {
    private static final Map<String, AdminProbe> PROBES = new HashMap<>();
    private final Map<String, Object> settings;
    private final String timeout;
    private final Admin admin;

    private AdminProbe(String bootstrap, String timeout) {
        this.timeout = timeout;
        settings = Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", timeout);
        Map<String, Object> all = new HashMap<>(settings);
        all.put("default.api.timeout.ms", timeout);
        admin = Admin.create(all);
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
        } catch (ExecutionException error) {
            return failed(error.getCause());
        } catch (Exception error) {
            return failed(error);
        }
    }

    private static String failed(Throwable error) {
        return "error\t" + error.getClass().getSimpleName() + "\t" + String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
    }

    private static String act(String[] words) throws Exception {
        if (words[0].equals("open")) {
            PROBES.put(words[1], new AdminProbe(words[2], words[3]));
            return "";
        }
        AdminProbe probe = PROBES.get(words[1]);
        switch (words[0]) {
            case "cluster":
                return probe.cluster();
            case "topics":
                return probe.topics();
            case "create":
                return probe.create(words);
            case "partitions":
                return probe.partitions(words[2]);
            case "close":
                PROBES.remove(words[1]).admin.close();
                return "";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String cluster() throws Exception {
        var found = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
        String nodes = found.nodes().get().stream().map(node -> node.id() + "\t" + node.host() + "\t" + node.port()).collect(Collectors.joining("\t"));
        return found.clusterId().get() + "\t" + found.controller().get().id() + "\t" + nodes;
    }

    private String topics() throws Exception {
        Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        Map<String, TopicDescription> found = new TreeMap<>(admin.describeTopics(names).allTopicNames().get());
        return found.values().stream()
                .map(topic -> topic.name() + "\t" + topic.partitions().size() + "\t" + topic.topicId())
                .collect(Collectors.joining("\t"));
    }

    private String create(String[] words) throws Exception {
        Map<String, String> configs = new HashMap<>();
        for (int at = 4; at + 1 < words.length; at += 2) {
            configs.put(words[at], words[at + 1]);
        }
        NewTopic topic = new NewTopic(words[2], Integer.parseInt(words[3]), (short) 1).configs(configs);
        var made = admin.createTopics(List.of(topic));
        made.all().get();
        return made.numPartitions(words[2]).get() + "\t" + made.topicId(words[2]).get() + "\t" + made.config(words[2]).get().get("retention.ms").value();
    }

    /** Asks for the topic's metadata as a producer does, which creates a missing topic. */
    private String partitions(String topic) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("max.block.ms", timeout);
        all.put("enable.idempotence", false);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer())) {
            return String.valueOf(producer.partitionsFor(topic).size());
        }
    }
}
