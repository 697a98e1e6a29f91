import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The account that signs requests, if interop/broker/security.py passed one. */
final class Credentials {
    private Credentials() {}

    /** Null when requests are not signed: the client libraries accept null as "no hook". */
    static RPCHook hook() {
        String key = System.getProperty("interop.accessKey");
        return key == null
                ? null
                : new AclClientRPCHook(new SessionCredentials(key, System.getProperty("interop.secretKey")));
    }
}
