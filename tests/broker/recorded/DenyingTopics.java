import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.server.authorizer.Action;

/** As Denying, and refuses everything about the cluster as a whole but what brokers need. */
public class DenyingTopics extends Denying {
    @Override
    boolean refuses(Action action) {
        boolean cluster = action.resourcePattern().resourceType() == ResourceType.CLUSTER;
        return super.refuses(action) || (cluster && action.operation() != AclOperation.CLUSTER_ACTION);
    }
}
