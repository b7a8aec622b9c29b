import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Constructor;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.timeline.SnapshotRegistry;
import org.apache.kafka.timeline.TimelineHashMap;

/**
 * Kafka's own assignors. Each line of the file is a case: {"assignor", "homogeneous", "topics": {hex id: partitions}, "members": [{"id",
 * "instance", "topics": [hex], "target": {hex: [partition]}}]}. For each, one line is printed: the assignment of each member, in the order
 * of the members, as {hex: [partition]} in Java's order; or, if a second argument is given, the microseconds that it took: by the clock, and
 * of processor time, that of Java's compiler included.
 * A line {"puts": [id]} prints the order of the coordinator's own table after these puts.
 */
public class KafkaAssignors {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final OperatingSystemMXBean PROCESS = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    static Uuid id(String hex) {
        return new Uuid(Long.parseUnsignedLong(hex.substring(0, 16), 16), Long.parseUnsignedLong(hex.substring(16), 16));
    }

    static String hex(Uuid id) {
        return String.format("%016x%016x", id.getMostSignificantBits(), id.getLeastSignificantBits());
    }

    static JsonNode puts(JsonNode ids) throws Exception {
        Constructor<?> made = SnapshotRegistry.class.getConstructors()[0]; // of a LogContext, whose package depends on the release
        Object context = made.getParameterTypes()[0].getConstructor().newInstance();
        TimelineHashMap<String, Integer> table = new TimelineHashMap<>((SnapshotRegistry) made.newInstance(context), 0);
        ids.forEach(id -> table.put(id.asText(), 1));
        ArrayNode order = MAPPER.createArrayNode();
        table.keySet().forEach(order::add);
        return order;
    }

    public static void main(String[] args) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            JsonNode given = MAPPER.readTree(line);
            if (given.has("puts")) {
                out.append(puts(given.get("puts"))).append('\n');
                continue;
            }
            Map<Uuid, Integer> counts = new HashMap<>();
            given.get("topics").fields().forEachRemaining(e -> counts.put(id(e.getKey()), e.getValue().asInt()));
            Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
            Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
            List<String> ids = new ArrayList<>();
            Map<List<String>, Set<Uuid>> shared = new HashMap<>();
            for (JsonNode member : given.get("members")) {
                String memberId = member.get("id").asText();
                ids.add(memberId);
                List<String> names = new ArrayList<>();
                member.get("topics").forEach(topic -> names.add(topic.asText()));
                Set<Uuid> topics = shared.computeIfAbsent(names, key -> {
                    Set<Uuid> made = new HashSet<>(Math.max((int) (key.size() / .75f) + 1, 16));
                    key.forEach(name -> made.add(id(name)));
                    return made;
                });
                Map<Uuid, Set<Integer>> target = new HashMap<>();
                member.get("target").fields().forEachRemaining(e -> {
                    List<Integer> numbers = new ArrayList<>();
                    e.getValue().forEach(number -> numbers.add(number.asInt()));
                    target.put(id(e.getKey()), new HashSet<>(numbers));
                    numbers.forEach(number -> owners.computeIfAbsent(id(e.getKey()), key -> new HashMap<>()).put(number, memberId));
                });
                Optional<String> instance = member.get("instance").isNull() ? Optional.empty() : Optional.of(member.get("instance").asText());
                members.put(memberId, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instance, topics, new Assignment(target)));
            }
            SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
                public int numPartitions(Uuid topic) {
                    return counts.getOrDefault(topic, -1);
                }

                public Set<String> racksForPartition(Uuid topic, int partition) {
                    return Set.of();
                }
            };
            SubscriptionType type = given.get("homogeneous").asBoolean() ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
            ConsumerGroupPartitionAssignor assignor = given.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
            GroupSpecImpl spec = new GroupSpecImpl(members, type, owners);
            long start = System.nanoTime();
            long cpu = PROCESS.getProcessCpuTime();
            GroupAssignment made = assignor.assign(spec, describer);
            cpu = PROCESS.getProcessCpuTime() - cpu;
            long nanos = System.nanoTime() - start;
            if (args.length > 1) {
                out.append(nanos / 1000).append(' ').append(cpu / 1000).append('\n');
                continue;
            }
            ArrayNode answer = MAPPER.createArrayNode();
            for (String memberId : ids) {
                ObjectNode assigned = answer.addObject();
                if (!made.members().containsKey(memberId)) continue; // the coordinator reads this as nothing
                made.members().get(memberId).partitions().forEach((topic, numbers) -> {
                    ArrayNode listed = assigned.putArray(hex(topic));
                    numbers.forEach(listed::add);
                });
            }
            out.append(answer).append('\n');
        }
        System.out.print(out);
    }
}
