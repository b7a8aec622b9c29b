import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.server.authorizer.Action;

/** Refuses what Denying refuses, and every operation on the cluster except the one that brokers need. */
public class DenyingTopics extends Denying {
    @Override
    boolean refuses(Action action) {
        boolean cluster = action.resourcePattern().resourceType() == ResourceType.CLUSTER;
        return super.refuses(action) || (cluster && action.operation() != AclOperation.CLUSTER_ACTION);
    }
}
