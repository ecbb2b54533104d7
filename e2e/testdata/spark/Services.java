import java.util.List;
import java.util.Map;

import org.apache.spark.network.TransportContext;
import org.apache.spark.network.crypto.AuthServerBootstrap;
import org.apache.spark.network.sasl.SecretKeyHolder;
import org.apache.spark.network.shuffle.ExternalBlockHandler;
import org.apache.spark.network.util.MapConfigProvider;
import org.apache.spark.network.util.TransportConf;

/**
 * External shuffle services as NodeManagers have them, made of Spark's own parts (YarnShuffleService, which is not among Spark's jars), one
 * for each address: with spark.authenticate each knows the secret of an application only if an executor of it has started on its node.
 *
 * <pre>
 * Services PORT SECRET [ADDRESS=known|unknown]...
 * </pre>
 */
public final class Services {
    public static void main(String[] args) throws Exception {
        TransportConf conf = new TransportConf("shuffle", new MapConfigProvider(Map.of()));
        for (String one : List.of(args).subList(2, args.length)) {
            String[] at = one.split("=");
            SecretKeyHolder secrets = new SecretKeyHolder() {
                @Override public String getSaslUser(String app) { return "sparkSaslUser"; }
                @Override public String getSecretKey(String app) { return at[1].equals("known") ? args[1] : null; }
            };
            new TransportContext(conf, new ExternalBlockHandler(conf, null)).createServer(at[0], Integer.parseInt(args[0]), List.of(new AuthServerBootstrap(conf, secrets)));
        }
        System.out.println("ready");
        System.in.read(); // until it is killed
    }
}
