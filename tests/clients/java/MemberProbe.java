import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of groups by Kafka's Java consumer, each in its own thread, with the commands and events of tests/clients/programs/life.py.
 * `remove` is a call of the admin client.
 */
public class MemberProbe implements Runnable, ConsumerRebalanceListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long PATIENCE_NANOS = Duration.ofSeconds(20).toNanos();
    private static final Map<String, MemberProbe> MEMBERS = new HashMap<>();
    private static final Map<String, String> ASSIGNORS = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    private final BlockingQueue<String> commands = new LinkedBlockingQueue<>();
    private final String name;
    private final KafkaConsumer<String, String> consumer;

    private MemberProbe(JsonNode settings) {
        name = settings.get("name").asText();
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", settings.get("bootstrap").asText());
        config.put("client.id", name);
        config.put("group.id", settings.get("group").asText());
        if (settings.hasNonNull("instance")) config.put("group.instance.id", settings.get("instance").asText());
        String protocol = settings.path("protocol").asText("classic");
        String assignor = settings.path("assignor").asText("range");
        if (protocol.equals("classic")) {
            config.put("partition.assignment.strategy", ASSIGNORS.get(assignor));
            config.put("session.timeout.ms", settings.path("session_ms").asInt(60_000));
            config.put("heartbeat.interval.ms", settings.path("heartbeat_ms").asInt(200));
        } else {
            config.put("group.protocol", protocol);
            config.put("group.remote.assignor", assignor);
        }
        config.put("max.poll.interval.ms", settings.path("poll_interval_ms").asInt(60_000));
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("reconnect.backoff.max.ms", 500);
        // The default, "rebootstrap", forgets all topics while the only broker is away, and a leader without topics joins again.
        config.put("metadata.recovery.strategy", "none");
        config.put("default.api.timeout.ms", 20_000);
        consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        if (settings.hasNonNull("pattern")) {
            consumer.subscribe(new SubscriptionPattern(settings.get("pattern").asText()), this);
            return;
        }
        List<String> topics = new ArrayList<>();
        settings.get("topics").forEach(topic -> topics.add(topic.asText()));
        consumer.subscribe(topics, this);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode command = JSON.readTree(line);
            String word = command.get("do").asText();
            String name = command.get("name").asText();
            if (word.equals("start")) {
                MemberProbe made = new MemberProbe(command);
                MEMBERS.put(name, made);
                new Thread(made, name).start();
            } else if (word.equals("remove")) {
                remove(name, command);
            } else {
                MEMBERS.get(name).commands.put(word);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void remove(String name, JsonNode command) {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", command.get("bootstrap").asText()))) {
            List<MemberToRemove> members = new ArrayList<>();
            command.get("instances").forEach(instance -> members.add(new MemberToRemove(instance.asText())));
            var options = members.isEmpty() ? new RemoveMembersFromConsumerGroupOptions() : new RemoveMembersFromConsumerGroupOptions(members);
            admin.removeMembersFromConsumerGroup(command.get("group").asText(), options).all().get();
            say(name, "did", Map.of("word", "remove"));
        } catch (Exception error) {
            say(name, "error", Map.of("name", error.getCause().getClass().getSimpleName(), "text", String.valueOf(error.getCause().getMessage())));
        }
    }

    private static void say(String name, String event, Map<String, ?> more) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("member", name);
        line.put("event", event);
        line.put("at", System.currentTimeMillis() / 1000.0);
        line.putAll(more);
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

    private void say(String event, Map<String, ?> more) {
        say(name, event, more);
    }

    @Override
    public void run() {
        say("started", Map.of());
        boolean polling = true;
        try {
            while (true) {
                while (!polling || !commands.isEmpty()) {
                    String word = commands.take();
                    if (word.equals("close")) {
                        consumer.close();
                        say("closed", Map.of());
                        return;
                    }
                    if (word.equals("unsubscribe")) consumer.unsubscribe();
                    else polling = word.equals("resume");
                    say("did", Map.of("word", word));
                }
                try {
                    work();
                } catch (Exception error) {
                    say("error", Map.of("name", error.getClass().getSimpleName(), "text", String.valueOf(error.getMessage())));
                    polling = false;
                }
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private void work() throws InterruptedException {
        List<Object> records = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> positions = new LinkedHashMap<>();
        for (ConsumerRecord<String, String> one : consumer.poll(POLL)) {
            records.add(List.of(one.topic(), one.partition(), one.offset(), one.value()));
            positions.put(new TopicPartition(one.topic(), one.partition()), new OffsetAndMetadata(one.offset() + 1));
        }
        if (records.isEmpty()) return;
        say("records", Map.of("records", records));
        long until = System.nanoTime() + PATIENCE_NANOS;
        while (true) {
            try {
                consumer.commitSync(positions);
                List<Object> told = new ArrayList<>();
                positions.forEach((place, offset) -> told.add(List.of(place.topic(), place.partition(), offset.offset())));
                say("committed", Map.of("positions", told));
                return;
            } catch (RetriableException error) {
                if (System.nanoTime() > until) {
                    say("commit_refused", Map.of("name", error.getClass().getSimpleName(), "text", String.valueOf(error.getMessage())));
                    return;
                }
                Thread.sleep(100);
            } catch (Exception error) {
                say("commit_refused", Map.of("name", error.getClass().getSimpleName(), "text", String.valueOf(error.getMessage())));
                return;
            }
        }
    }

    private void say(String event, Collection<TopicPartition> partitions) {
        List<Object> told = new ArrayList<>();
        for (TopicPartition one : partitions) told.add(List.of(one.topic(), one.partition()));
        say(event, Map.of("partitions", told));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        say("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        say("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        say("lost", partitions);
    }
}
