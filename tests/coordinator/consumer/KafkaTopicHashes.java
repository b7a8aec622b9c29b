import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;

/** For each line, a list of topics {"name", "most", "least", "racks": [[rack of a replica] of each partition]}: Kafka's hash of each, and of all. */
public class KafkaTopicHashes {
    record Topic(String name, Uuid id, List<List<String>> racks) implements CoordinatorMetadataImage.TopicMetadata {
        public int partitionCount() {
            return racks.size();
        }

        public List<String> partitionRacks(int partition) {
            return racks.get(partition);
        }
    }

    record Image(Topic topic) implements CoordinatorMetadataImage {
        public Set<Uuid> topicIds() {
            return Set.of(topic.id());
        }

        public Set<String> topicNames() {
            return Set.of(topic.name());
        }

        public Optional<TopicMetadata> topicMetadata(String name) {
            return Optional.of(topic);
        }

        public Optional<TopicMetadata> topicMetadata(Uuid id) {
            return Optional.of(topic);
        }

        public CoordinatorMetadataDelta emptyDelta() {
            throw new UnsupportedOperationException();
        }

        public long version() {
            return 1;
        }

        public boolean isEmpty() {
            return false;
        }
    }

    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            Map<String, Long> hashes = new HashMap<>();
            StringBuilder out = new StringBuilder();
            for (JsonNode given : new ObjectMapper().readTree(line)) {
                List<List<String>> racks = new ArrayList<>();
                for (JsonNode partition : given.get("racks")) {
                    List<String> listed = new ArrayList<>();
                    partition.forEach(rack -> listed.add(rack.asText()));
                    racks.add(listed);
                }
                Topic topic = new Topic(given.get("name").asText(), new Uuid(given.get("most").asLong(), given.get("least").asLong()), racks);
                long hash = Utils.computeTopicHash(topic.name(), new Image(topic));
                hashes.put(topic.name(), hash);
                out.append(hash).append(' ');
            }
            System.out.println(out.toString() + Utils.computeGroupHash(hashes));
        }
    }
}
