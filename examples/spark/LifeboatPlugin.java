import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleStatus;
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
import scala.Option;
import scala.collection.JavaConverters;

/**
 * Has a Spark driver look for the map outputs of a lost executor where Lifeboat carried them, so that no map runs again. It asks the agent
 * of the driver's own machine, on its socket, and needs no change of Spark. See README.md beside it.
 */
public final class LifeboatPlugin implements SparkPlugin {
    @Override public DriverPlugin driverPlugin() { return new Locations(); }
    @Override public ExecutorPlugin executorPlugin() { return null; }

    /** The executor that peers' shuffle services know what Lifeboat put there by. */
    private static final String EXECUTOR = "lifeboat";
    /** An agent that starts, or a block in flight, is asked about again each second, and no longer than any cloud's notice lasts. */
    private static final int TRIES = 120;

    private static final class Locations implements DriverPlugin {
        private final ScheduledExecutorService thread = Executors.newSingleThreadScheduledExecutor(work -> {
            Thread t = new Thread(work, "lifeboat");
            t.setDaemon(true);
            return t;
        });
        private final Set<String> registered = new HashSet<>(); // hosts

        @Override public Map<String, String> init(SparkContext spark, PluginContext context) {
            spark.addSparkListener(new SparkListener() {
                @Override public void onExecutorRemoved(SparkListenerExecutorRemoved gone) { thread.execute(() -> look(TRIES)); }
            });
            return Map.of();
        }

        @Override public void shutdown() { thread.shutdownNow(); }

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

        private static String setting(String key, String otherwise) { return SparkEnv.get().conf().get(key, otherwise); }

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

        private static String header(String answer, String name) {
            return answer.lines().filter(line -> line.regionMatches(true, 0, name + ":", 0, name.length() + 1))
                .map(line -> line.substring(name.length() + 1).trim()).findFirst().orElse("");
        }
    }
}
