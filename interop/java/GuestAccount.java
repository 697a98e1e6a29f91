import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The account a guest signs with, if interop/broker/security.py gave it one. */
final class GuestAccount {
    private GuestAccount() {}

    /** Null where requests are not signed, which is what the clients take for "no hook". */
    static RPCHook hook() {
        String key = System.getProperty("guest.accessKey");
        return key == null
                ? null
                : new AclClientRPCHook(new SessionCredentials(key, System.getProperty("guest.secretKey")));
    }
}
