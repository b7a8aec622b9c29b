import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;

/** Refuses the operations that a resource's name lists, as in "no-read-x" and "no-describe-delete-x"; allows everything else. */
public class Denying implements Authorizer {
    public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo server) {
        Map<Endpoint, CompletionStage<Void>> ready = new HashMap<>();
        for (Endpoint endpoint : server.endpoints()) ready.put(endpoint, CompletableFuture.completedFuture(null));
        return ready;
    }

    public List<AuthorizationResult> authorize(AuthorizableRequestContext context, List<Action> actions) {
        List<AuthorizationResult> results = new ArrayList<>();
        for (Action action : actions) results.add(refuses(action) ? AuthorizationResult.DENIED : AuthorizationResult.ALLOWED);
        return results;
    }

    boolean refuses(Action action) {
        String name = action.resourcePattern().name();
        return name.startsWith("no-") && name.contains("-" + action.operation().name().toLowerCase() + "-");
    }

    public List<? extends CompletionStage<AclCreateResult>> createAcls(AuthorizableRequestContext context, List<AclBinding> bindings) {
        return List.of();
    }

    public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(AuthorizableRequestContext context, List<AclBindingFilter> filters) {
        return List.of();
    }

    public Iterable<AclBinding> acls(AclBindingFilter filter) {
        return List.of();
    }

    public void configure(Map<String, ?> settings) {}

    public void close() {}
}
