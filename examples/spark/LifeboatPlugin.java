import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Proxy;
import java.net.Socket;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;

import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.network.shuffle.ExternalBlockStoreClient;
import org.apache.spark.network.shuffle.protocol.ExecutorShuffleInfo;
import org.apache.spark.network.util.MapConfigProvider;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.FallbackStorage;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.JavaConverters;

/**
 * Has a Spark driver look for the map outputs of a lost executor where Lifeboat carried them, so that no map runs again. It asks the agent
 * of the driver's own machine, on its socket, and needs no change of Spark. Where it is told of coordinators, it also tells them that the
 * application lives, and when it is over. See README.md beside it.
 */
public final class LifeboatPlugin implements SparkPlugin {
    @Override public DriverPlugin driverPlugin() { return new Driver(); }
    @Override public ExecutorPlugin executorPlugin() { return null; }

    /** The executor that peers' shuffle services know what Lifeboat put there by. */
    private static final String EXECUTOR = "lifeboat";
    /** An agent that starts, or a block in flight, is asked about again each second, and no longer than any cloud's notice lasts. */
    private static final int TRIES = 120;

    private static final class Driver implements DriverPlugin {
        private final ScheduledExecutorService thread = daemon("lifeboat");
        private final Set<String> registered = new HashSet<>(); // hosts
        private Life life; // null: nobody is to be told

        @Override public Map<String, String> init(SparkContext spark, PluginContext context) {
            spark.addSparkListener(new SparkListener() {
                @Override public void onExecutorRemoved(SparkListenerExecutorRemoved gone) { thread.execute(() -> look(TRIES)); }
            });
            return Map.of();
        }

        /** Of the calls to a plugin it is the first that knows the application's id. */
        @Override public void registerMetrics(String app, PluginContext context) {
            if (!setting("spark.lifeboat.coordinators", "").isEmpty()) life = new Life(app);
        }

        @Override public void shutdown() {
            thread.shutdownNow();
            if (life != null) life.end();
        }

        /** Goes through the map outputs that the driver knows nobody to have any more. */
        private void look(int tries) {
            boolean again = false;
            MapOutputTrackerMaster tracker = (MapOutputTrackerMaster) SparkEnv.get().mapOutputTracker();
            for (Map.Entry<Object, ShuffleStatus> shuffle : JavaConverters.mapAsJavaMap(tracker.shuffleStatuses()).entrySet()) {
                MapStatus[] now = shuffle.getValue().mapStatuses(), lost = shuffle.getValue().mapStatusesDeleted();
                for (int i = 0; i < now.length; i++) {
                    if (now[i] != null || lost[i] == null) continue;
                    try {
                        BlockManagerId where = find((Integer) shuffle.getKey(), lost[i].mapId(), lost[i].location().host());
                        if (where != null) tracker.updateMapOutput((Integer) shuffle.getKey(), lost[i].mapId(), where);
                    } catch (InterruptedException e) {
                        return; // Spark ends
                    } catch (Exception e) { // of any kind: what Spark's client throws when nobody listens is not declared
                        again = true;
                    }
                }
            }
            if (again && tries > 1) thread.schedule(() -> look(tries - 1), 1, TimeUnit.SECONDS);
        }

        /** Where readers are to look for a map output; null: it is nowhere, and its map must run again. */
        private BlockManagerId find(int shuffle, long map, String was) throws IOException, InterruptedException {
            String app = setting("spark.app.id", "");
            String answer = head("/blocks/" + setting("spark.lifeboat.store", "spark") + "/" + app + "/shuffle_" + shuffle + "_" + map + "_0.index");
            String node = header(answer, "Lifeboat-Node");
            if (answer.startsWith("404", 9) || answer.startsWith("410", 9)) return null;
            if (!answer.startsWith("200", 9)) throw new IOException("the agent says " + answer.lines().findFirst().orElse("nothing"));
            if (node.startsWith("fallback:")) return FallbackStorage.FALLBACK_BLOCK_MANAGER_ID();
            String dirs = setting("spark.lifeboat.dirs", "");
            if (dirs.isEmpty() || node.equals(was)) return null; // nobody serves what lies there; or it was not carried away
            int port = Integer.parseInt(setting("spark.shuffle.service.port", "7337"));
            register(node, port, app, dirs);
            return BlockManagerId.apply(EXECUTOR, node, port, Option.empty());
        }

        /** Tells the shuffle service of a node where Lifeboat puts the files of this application. */
        private void register(String host, int port, String app, String dirs) throws IOException, InterruptedException {
            if (registered.contains(host)) return;
            String[] local = Arrays.stream(dirs.split(",")).map(dir -> dir + "/" + app + "/blockmgr-lifeboat").toArray(String[]::new);
            boolean authenticated = SparkEnv.get().securityManager().isAuthenticationEnabled();
            TransportConf conf = new TransportConf("shuffle", new MapConfigProvider(Map.of()));
            try (ExternalBlockStoreClient client = new ExternalBlockStoreClient(conf, SparkEnv.get().securityManager(), authenticated, 5000)) {
                client.init(app);
                client.registerWithShuffleServer(host, port, EXECUTOR, new ExecutorShuffleInfo(local, 64, "org.apache.spark.shuffle.sort.SortShuffleManager"));
            }
            registered.add(host);
        }

        /** The agent's answer to HEAD: the status line and the headers. */
        private static String head(String path) throws IOException {
            UnixDomainSocketAddress socket = UnixDomainSocketAddress.of(setting("spark.lifeboat.socket", "/run/lifeboat/agent.sock"));
            try (SocketChannel agent = SocketChannel.open(StandardProtocolFamily.UNIX)) {
                agent.connect(socket);
                agent.write(StandardCharsets.US_ASCII.encode("HEAD " + path + " HTTP/1.0\r\n\r\n"));
                ByteBuffer answer = ByteBuffer.allocate(16 << 10);
                while (agent.read(answer) > 0) { }
                return StandardCharsets.US_ASCII.decode(answer.flip()).toString();
            }
        }
    }

    /** Tells the coordinators, on a thread of its own, that the application lives: an agent that hangs would not let it be said in time. */
    private static final class Life {
        private static final Logger log = LoggerFactory.getLogger(LifeboatPlugin.class);
        /** The application may be silent for as long: four beats may fail. */
        private static final String BEAT = "beat?lease=5m";
        private static final int PATIENCE = 5000, FAREWELL = 10000; // milliseconds
        private static final int HEARD = 204, NOBODY = 0;

        private final ScheduledExecutorService thread = daemon("lifeboat-life");
        private final SparkConf conf = SparkEnv.get().conf();
        private final boolean last = !conf.contains("spark.app.attempt.id"); // where attempts are counted, the next may have the same id
        private final String app;
        private int was = HEARD; // what came of the word before

        Life(String app) {
            this.app = app;
            thread.scheduleWithFixedDelay(() -> say(BEAT), 0, 1, TimeUnit.MINUTES);
        }

        /** Says that it is over, or leaves that to silence: it would be over for the next attempt too. */
        void end() {
            if (last) thread.execute(() -> say("over"));
            thread.shutdown(); // no more beats
            try {
                if (last) thread.awaitTermination(FAREWELL, TimeUnit.MILLISECONDS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        /** Says a word to the first coordinator that hears or refuses it, and logs what came of it where that is news. */
        private void say(String word) {
            int now = NOBODY;
            String why = "", path = "/apps/" + app + "/" + word;
            for (String at : conf.get("spark.lifeboat.coordinators").split(",")) {
                try {
                    String answer = post(at.trim(), path);
                    if (answer.startsWith("307", 9)) answer = post(header(answer, "Location").split("/")[2], path); // who leads
                    int status = Integer.parseInt(answer.substring(9, 12));
                    why = at + " says " + status + " " + answer.substring(answer.indexOf("\r\n\r\n") + 4).trim();
                    if (status != HEARD && status / 100 != 4) continue;
                    now = status;
                    break;
                } catch (Throwable e) { // of any kind: one that is thrown from here ends the beats
                    why = at + ": " + e;
                }
            }
            if (now != was && now == HEARD) log.info("Lifeboat's coordinators hear {} again", app);
            if (now != was && now != HEARD) log.warn("Lifeboat's coordinators do not hear {}: {}", app, why);
            was = now;
        }

        /** A coordinator's answer, with its headers. */
        private String post(String at, String path) throws IOException, GeneralSecurityException {
            String host = at.substring(0, at.lastIndexOf(':'));
            int port = Integer.parseInt(at.substring(host.length() + 1));
            try (Socket plain = new Socket(Proxy.NO_PROXY)) {
                plain.connect(new InetSocketAddress(host, port), PATIENCE);
                plain.setSoTimeout(PATIENCE);
                SSLSocket coordinator = (SSLSocket) tls().createSocket(plain, host, port, true);
                coordinator.startHandshake();
                verify((X509Certificate) coordinator.getSession().getPeerCertificates()[0]);
                coordinator.getOutputStream().write(("POST " + path + " HTTP/1.0\r\nContent-Length: 0\r\n\r\n").getBytes(StandardCharsets.US_ASCII));
                return new String(coordinator.getInputStream().readNBytes(16 << 10), StandardCharsets.UTF_8);
            }
        }

        /** Certificates of the fleet say what their holders are, and need not say where: the one that is right is a coordinator's. */
        private static void verify(X509Certificate shown) throws CertificateException {
            List<?> roles = shown.getSubjectAlternativeNames() == null ? List.of() : shown.getSubjectAlternativeNames().stream()
                .map(name -> name.get(1)).filter(name -> name.toString().startsWith("lifeboat:")).toList();
            if (roles.size() != 1 || !roles.get(0).toString().startsWith("lifeboat://coordinator/")) {
                throw new CertificateException("it shows the certificate of " + roles + ", want a coordinator's");
            }
        }

        /** Trusts the fleet's authority alone, and shows the application's certificate. The files are read each time: certificates are renewed. */
        private SSLSocketFactory tls() throws IOException, GeneralSecurityException {
            KeyStore trusted = KeyStore.getInstance("PKCS12"), own = KeyStore.getInstance("PKCS12");
            trusted.load(null, null);
            for (Certificate authority : certificates("ca")) trusted.setCertificateEntry("ca" + trusted.size(), authority);
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(trusted);

            Certificate[] chain = certificates("cert");
            byte[] bytes = Base64.getMimeDecoder().decode(Files.readString(file("key")).replaceAll("-----[^-]*-----", ""));
            PrivateKey secret = KeyFactory.getInstance(chain[0].getPublicKey().getAlgorithm()).generatePrivate(new PKCS8EncodedKeySpec(bytes));
            own.load(null, null);
            own.setKeyEntry("own", secret, new char[0], chain);
            KeyManagerFactory show = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            show.init(own, new char[0]);

            SSLContext tls = SSLContext.getInstance("TLSv1.3");
            tls.init(show.getKeyManagers(), trust.getTrustManagers(), null);
            return tls.getSocketFactory();
        }

        private Certificate[] certificates(String which) throws IOException, CertificateException {
            try (InputStream pem = Files.newInputStream(file(which))) {
                return CertificateFactory.getInstance("X.509").generateCertificates(pem).toArray(Certificate[]::new);
            }
        }

        private Path file(String which) { return Path.of(conf.get("spark.lifeboat." + which)); }
    }

    private static ScheduledExecutorService daemon(String name) {
        return Executors.newSingleThreadScheduledExecutor(work -> {
            Thread t = new Thread(work, name);
            t.setDaemon(true);
            return t;
        });
    }

    private static String setting(String key, String otherwise) { return SparkEnv.get().conf().get(key, otherwise); }

    private static String header(String answer, String name) {
        return answer.lines().filter(line -> line.regionMatches(true, 0, name + ":", 0, name.length() + 1))
            .map(line -> line.substring(name.length() + 1).trim()).findFirst().orElse("");
    }
}
