import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.utils.AppInfoParser;

/** Prints the version, and the name of every setting of Apache Kafka's clients, one per line. */
public class ClientSettings {
    public static void main(String[] arguments) {
        TreeSet<String> names = new TreeSet<>(ConsumerConfig.configNames());
        names.addAll(ProducerConfig.configNames());
        names.addAll(AdminClientConfig.configNames());
        System.out.println(AppInfoParser.getVersion());
        names.forEach(System.out::println);
    }
}
