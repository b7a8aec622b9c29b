import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.metrics.JmxReporter;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.QuotaConfig;

/** Prints every broker setting that Apache Kafka defines: name, type, default, one per line, separated by tabs. */
public class KnownSettings {
    public static void main(String[] arguments) {
        TreeMap<String, String> lines = new TreeMap<>();
        for (ConfigDef.ConfigKey key : AbstractKafkaConfig.CONFIG_DEF.configKeys().values()) {
            boolean none = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE || key.defaultValue == null;
            lines.put(key.name, key.type + "\t" + (none ? "-" : ConfigDef.convertToString(key.defaultValue, key.type)));
        }
        // Kafka reads these too, outside its own definition.
        for (String name : QuotaConfig.brokerQuotaConfigs().names()) lines.put(name, "STRING\t-");
        for (String name : Set.of(StandardAuthorizer.SUPER_USERS_CONFIG, StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG,
                                  JmxReporter.INCLUDE_CONFIG, JmxReporter.EXCLUDE_CONFIG)) lines.put(name, "STRING\t-");
        System.out.println("version\t" + AppInfoParser.getVersion());
        lines.forEach((name, rest) -> System.out.println(name + "\t" + rest));
    }
}
