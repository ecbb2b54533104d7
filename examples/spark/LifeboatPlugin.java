import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.net.Proxy;
import java.net.Socket;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
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
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;

import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.MapOutputTrackerWorker;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.network.client.StreamCallbackWithID;
import org.apache.spark.network.shuffle.ExternalBlockStoreClient;
import org.apache.spark.network.shuffle.protocol.ExecutorShuffleInfo;
import org.apache.spark.network.util.MapConfigProvider;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerBlockUpdated;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerUnpersistRDD;
import org.apache.spark.shuffle.IndexShuffleBlockResolver;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.BlockManagerMaster;
import org.apache.spark.storage.BlockUpdatedInfo;
import org.apache.spark.storage.FallbackStorage;
import org.apache.spark.storage.RDDBlockId;
import org.apache.spark.storage.ShuffleDataBlockId;
import org.apache.spark.storage.ShuffleIndexBlockId;
import org.apache.spark.storage.StorageLevel;
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
    @Override public ExecutorPlugin executorPlugin() { return new Executor(); }

    /** The executor that a peer's shuffle service knows what Lifeboat put there by, with its host: Spark drops all of an executor's outputs if one is not found. */
    private static final String EXECUTOR = "lifeboat-";
    /**
     * An agent that starts, or a block in flight, is asked about again after a second, then two, four and eight, and no longer than any cloud's notice lasts. What
     * is on a host that leaves is asked about each two seconds for as long: it may go with the next.
     */
    private static final int PATIENCE = 120; // seconds
    /** Spark tries a stage again 200 ms after a fetch failed (DAGScheduler.RESUBMIT_TIMEOUT): by then it must know where the outputs are. */
    private static final int LOOK = 50;
    private static final int ASKING = 16; // at a time
    private static final int LEAVES = 15; // minutes that a host is looked after that is to leave
    private static final int CACHED = 64; // cached partitions asked about at a time: for as long as they are entered, readers may look for an executor that is none
    private static final int BATCH = 1000; // outputs in one question, and until what came of it is told to Spark
    /** Of what nobody is known to have yet every node is asked that could have it: of a few of a shuffle's outputs, and of more once those have landed. */
    private static final int FEW = 8;
    private static final int TOLD = 5; // seconds until an executor knows that outputs have moved
    private static final String FETCH = "1g"; // the most that the driver fetches of what no shuffle service serves
    private static final int TELL = 20; // seconds, after which shuffle services are told again of what is there
    private static final int SILENT = 10; // seconds, after which one that did not hear is asked again
    private static final Pattern PLACE = Pattern.compile("\"id\":\"[^\"]*/([^\"/]+)\",\"node\":\"([^\"]*)\"(?:,\"landed\":\"([a-z]*)\")?");

    private static final Logger log = LoggerFactory.getLogger(LifeboatPlugin.class);

    /**
     * Says in an executor's directories which application they belong to, which those of a standalone worker do not say by their names, or which
     * attempt of it. It also sees to it that the tasks of a stage that runs already look for outputs where they have moved: Spark tells that with
     * the next stage.
     */
    private static final class Executor implements ExecutorPlugin {
        private final ScheduledExecutorService thread = daemon("lifeboat");

        @Override public void init(PluginContext context, Map<String, String> extra) {
            if (setting("spark.app.id", "").isEmpty()) return; // an executor in the driver does not know it yet
            for (File dir : SparkEnv.get().blockManager().diskBlockManager().localDirs()) {
                try {
                    Files.writeString(dir.toPath().resolve(".lifeboat-app.data"), app());
                } catch (IOException e) {
                    log.warn("Lifeboat does not learn whose {} is: what is in it is carried, but not found again", dir, e);
                }
            }
            if (SparkEnv.get().mapOutputTracker() instanceof MapOutputTrackerWorker) {
                MapOutputTrackerWorker tracker = (MapOutputTrackerWorker) SparkEnv.get().mapOutputTracker();
                thread.scheduleWithFixedDelay(() -> {
                    try {
                        tracker.updateEpoch((Long) context.ask("epoch"));
                    } catch (Throwable e) { // of any kind: one that is thrown from here ends the questions. It hears of it with the next stage
                    }
                }, TOLD, TOLD, TimeUnit.SECONDS);
            }
        }

        @Override public void shutdown() { thread.shutdownNow(); }
    }

    private static final class Driver implements DriverPlugin {
        private final ScheduledExecutorService thread = daemon("lifeboat");
        private final ExecutorService asking = Executors.newFixedThreadPool(ASKING, work -> daemon(work, "lifeboat-ask"));
        private final ThreadLocal<SocketChannel> agent = new ThreadLocal<>(); // a connection to it
        private final Map<String, Integer> registered = new ConcurrentHashMap<>(); // hosts whose shuffle services were told, and their ports
        private final Map<String, FutureTask<Integer>> words = new ConcurrentHashMap<>(); // to those of other hosts; one that was not heard stands for a while
        private final ScheduledExecutorService telling = daemon("lifeboat-tell");
        private final Set<String> unserved = new HashSet<>(); // hosts of which it was said that their shuffle services do not serve this application
        private final AtomicLong fetches = new AtomicLong(); // how many bytes more the driver may fetch
        private final Map<Integer, Shuffle> asked = new HashMap<>();
        private final Map<String, Long> leaving = new ConcurrentHashMap<>(); // hosts, and until when outputs are looked for that have left them
        private Cached cached; // null: nobody serves cached partitions of executors that are gone
        private boolean troubled; // the last look was
        private boolean unheard; // the last questions were
        private Life life; // null: nobody is to be told

        @Override public Map<String, String> init(SparkContext spark, PluginContext context) {
            // Executors of the same host would open the files themselves, as the application's user. What landed is its store's owner's, as whom the
            // shuffle service runs: YARN's containers are others' where LinuxContainerExecutor starts them.
            if (!setting("spark.lifeboat.dirs", "").isEmpty()) context.conf().setIfMissing("spark.shuffle.readHostLocalDisk", "false");
            try {
                head("/healthz");
            } catch (IOException e) {
                log.warn("Lifeboat's agent does not answer at {}: while it does not, maps run again whose outputs are lost", socket(), e);
            }
            SparkConf conf = spark.conf();
            fetches.set(conf.getSizeAsBytes("spark.lifeboat.fetch", FETCH));
            if (conf.getBoolean("spark.shuffle.service.enabled", false) && conf.getBoolean("spark.shuffle.service.fetch.rdd.enabled", false)
                && !conf.getBoolean("spark.io.encryption.enabled", false) // the shuffle service hands cached partitions out as they are on disk, and Spark takes them for plain
                && !conf.get("spark.lifeboat.dirs", "").isEmpty()) {
                cached = new Cached(spark);
                spark.addSparkListener(cached);
            }
            thread.scheduleWithFixedDelay(this::look, LOOK, LOOK, TimeUnit.MILLISECONDS);
            telling.scheduleWithFixedDelay(this::tellAgain, TELL, TELL, TimeUnit.SECONDS);
            return Map.of();
        }

        /** Of the calls to a plugin it is the first that knows the application's id. */
        @Override public void registerMetrics(String app, PluginContext context) {
            if (!setting("spark.lifeboat.coordinators", "").isEmpty()) life = new Life(app(), host -> leaving.put(host, System.nanoTime() + TimeUnit.MINUTES.toNanos(LEAVES)), leaving::remove);
        }

        @Override public Object receive(Object question) { return ((MapOutputTrackerMaster) SparkEnv.get().mapOutputTracker()).getEpoch(); }

        @Override public void shutdown() {
            thread.shutdownNow();
            asking.shutdownNow();
            telling.shutdownNow();
            if (life != null) life.end();
        }

        /** Goes through the map outputs that the driver knows nobody to have any more. It hears of them in more ways than one. */
        private void look() {
            try {
                MapOutputTrackerMaster tracker = (MapOutputTrackerMaster) SparkEnv.get().mapOutputTracker();
                Map<Object, ShuffleStatus> shuffles = JavaConverters.mapAsJavaMap(tracker.shuffleStatuses());
                asked.entrySet().removeIf(of -> !shuffles.containsKey(of.getKey()) && drop(of.getKey(), of.getValue()));
                leaving.values().removeIf(until -> until - System.nanoTime() <= 0);
                for (Map.Entry<Object, ShuffleStatus> shuffle : shuffles.entrySet()) {
                    ShuffleStatus status = shuffle.getValue();
                    if (!leaving.isEmpty() || status.numAvailableMapOutputs() < status.mapStatuses().length) find(tracker, (Integer) shuffle.getKey(), status);
                }
                if (cached != null && !leaving.isEmpty()) findCached();
                troubled = false;
            } catch (InterruptedException e) {
                thread.shutdown(); // Spark ends
            } catch (Throwable e) { // of any kind: one that is thrown from here ends the looks
                if (!troubled) log.warn("Lifeboat was not asked where lost map outputs are, and is again", e);
                troubled = true;
            }
        }

        /** Looks for the outputs of one shuffle's maps that were lost, or whose host is about to go: who is told before it does fails no fetch. */
        private void find(MapOutputTrackerMaster tracker, int shuffle, ShuffleStatus status) throws InterruptedException {
            MapStatus[] now = status.mapStatuses(), lost = status.mapStatusesDeleted();
            Shuffle known = asked.computeIfAbsent(shuffle, id -> new Shuffle());
            Map<Long, Asked> due = new LinkedHashMap<>();
            int wait = 0;
            for (int n = 0, from = known.from; n < now.length; n++) {
                int i = (from + n) % now.length;
                MapStatus output = now[i] != null ? now[i] : lost[i];
                if (output == null || output == now[i] && !leaving.containsKey(output.location().host())) continue;
                boolean isLost = output != now[i];
                if (!isLost) wait++;
                BlockManagerId was = output.location();
                Asked about = known.outputs.compute(output.mapId(), (id, before) -> before != null && before.was.equals(was) && before.lost == isLost ? before : new Asked(was, isLost));
                if (!about.due() || due.size() + known.asking.size() >= BATCH) continue;
                due.put(output.mapId(), about);
                known.from = i + 1; // all have their turn
            }
            Map<String, String[]> held = due.isEmpty() ? null : held(shuffle, due.keySet());
            int few = known.open > 0 || known.next - System.nanoTime() > 0 ? 0 : known.few;
            for (Map.Entry<Long, Asked> of : due.entrySet()) {
                Asked about = of.getValue();
                String file = file(shuffle, of.getKey());
                String[] at = held == null ? null : held.get(file);
                if (at == null && !about.lost && known.open >= few) {
                    if (held != null) about.later();
                    continue;
                }
                about.ask(() -> at != null ? at(at[0], at[1], about.was) : where(file, about.was));
                if (at == null && !about.lost) {
                    about.early = true;
                    known.open++;
                    known.some++;
                }
                if (at == null) asking.execute(about.answer);
                else about.answer.run();
                known.asking.put(of.getKey(), about);
            }
            // Spark itself may have moved some: it tells no executor. And what is merged at a host that leaves goes with it.
            boolean moved = wait < known.wait | unmerge(status);
            int in = 0;
            Throwable why = null;
            long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LOOK);
            for (Map.Entry<Long, Asked> of : List.copyOf(known.asking.entrySet())) {
                long map = of.getKey();
                Asked about = of.getValue();
                try {
                    BlockManagerId where = about.answer.get(about.lost ? until - System.nanoTime() : 0, TimeUnit.NANOSECONDS);
                    if (where != null && where.executorId().startsWith(EXECUTOR) && !serves(where, about.lost ? until : System.nanoTime())) {
                        about.ask(() -> fetch(shuffle, map, known));
                        asking.execute(about.answer);
                        continue;
                    }
                    if (where != null && known.outputs.get(map) == about) tracker.updateMapOutput(shuffle, map, where);
                    moved |= where != null;
                    if (!about.lost) in++;
                    if (about.early) known.landed++;
                } catch (InterruptedException e) {
                    throw e;
                } catch (TimeoutException e) {
                    continue;
                } catch (Exception e) { // of any kind: what Spark's client throws when nobody listens is not declared
                    about.later();
                    if (!(e.getCause() instanceof NotYet)) why = e;
                }
                known.asking.remove(map, about);
                if (about.early && --known.open == 0) known.pace();
                about.early = false;
            }
            if (why != null && !unheard) log.warn("Lifeboat was not asked where map outputs are, or a shuffle service does not serve them there: it is tried again, and their maps may run meanwhile", why);
            if (!due.isEmpty()) unheard = why != null;
            known.wait = wait - in;
            if (moved) tracker.incrementEpoch(); // executors ask anew
        }

        /**
         * Has readers go by the outputs themselves, which are carried, and not by what was merged of them at hosts that leave
         * (spark.shuffle.push.enabled): a reader that is sent to a merger which is gone tries long, and fails no fetch by which Spark would learn it.
         */
        private boolean unmerge(ShuffleStatus status) {
            int merged = status.numAvailableMergeResults();
            status.removeMergeResultsByFilter(at -> leaving.containsKey(at.host()));
            return status.numAvailableMergeResults() < merged;
        }

        private static String file(int shuffle, long map) { return "shuffle_" + shuffle + "_" + map + "_0.index"; }

        /** What was asked about a shuffle's map outputs. */
        private static final class Shuffle {
            final Map<Long, Asked> outputs = new HashMap<>(), asking = new LinkedHashMap<>();
            int from; // the next in turn
            int wait; // outputs of hosts that leave, which have not moved yet
            int few = FEW, some, open, landed; // of them are asked about one by one at once; were, are not answered yet, have landed
            long next = System.nanoTime(); // when they are
            final Map<Long, Long> fetched = new HashMap<>(); // the bytes that the driver has of its outputs; this map guards the next
            boolean over; // Spark keeps it no more

            void pace() {
                boolean most = 2 * landed >= some;
                few = most ? Math.min(2 * few, BATCH) : FEW;
                if (!most) next = System.nanoTime() + TimeUnit.SECONDS.toNanos(1);
                some = landed = 0;
            }
        }

        /** Where an output will be is not to be told yet. */
        private static final class NotYet extends IOException {
            NotYet(String why) { super(why); }
        }

        /** Looks for what is cached on hosts that are about to go. */
        private void findCached() throws InterruptedException {
            Map<BlockManagerId, Map<RDDBlockId, Future<BlockManagerId>>> answers = new HashMap<>();
            int asked = 0;
            for (Map.Entry<BlockManagerId, Map<RDDBlockId, Kept>> at : cached.disks.entrySet()) {
                BlockManagerId was = at.getKey();
                if (!leaving.containsKey(was.host())) continue;
                for (Map.Entry<RDDBlockId, Kept> block : at.getValue().entrySet()) {
                    if (asked == CACHED) break;
                    Kept kept = block.getValue();
                    if (kept.asked == null || kept.asked.end - System.nanoTime() <= 0) kept.asked = new Asked(was, false); // the host stayed then
                    if (!kept.asked.due()) continue;
                    answers.computeIfAbsent(was, id -> new HashMap<>()).put(block.getKey(), asking.submit(() -> where(block.getKey().name(), was)));
                    asked++;
                }
            }
            for (Map.Entry<BlockManagerId, Map<RDDBlockId, Future<BlockManagerId>>> of : answers.entrySet()) {
                Map<RDDBlockId, Kept> disk = cached.disks.get(of.getKey());
                Map<BlockManagerId, Map<RDDBlockId, Kept>> moved = new HashMap<>();
                for (Map.Entry<RDDBlockId, Future<BlockManagerId>> answer : of.getValue().entrySet()) {
                    Kept kept = disk.get(answer.getKey());
                    if (kept == null) continue; // it was removed meanwhile
                    try {
                        BlockManagerId where = answer.getValue().get();
                        if (where == null || !where.executorId().startsWith(EXECUTOR)) {
                            kept.asked.settled();
                            continue;
                        }
                        told(where.host(), where.port(), System.nanoTime());
                        kept.asked.later(); // unless it is entered now
                        moved.computeIfAbsent(where, id -> new HashMap<>()).put(answer.getKey(), kept);
                    } catch (InterruptedException e) {
                        throw e;
                    } catch (Exception e) { // as above
                        kept.asked.later();
                    }
                }
                moved.forEach((where, blocks) -> {
                    cached.move(of.getKey(), where, blocks);
                    blocks.values().forEach(kept -> kept.asked.settled());
                });
            }
        }

        /** What was asked about a map output that was lost, or may be. */
        private static final class Asked {
            final BlockManagerId was;
            final boolean lost; // else it may be read there still
            final long end, hurry; // until when it is asked about, and often
            FutureTask<BlockManagerId> answer;
            boolean early; // it is one of a few
            long next = System.nanoTime(), pause = TimeUnit.SECONDS.toNanos(1);

            Asked(BlockManagerId was, boolean lost) {
                this.was = was;
                this.lost = lost;
                end = next + (lost ? TimeUnit.SECONDS.toNanos(PATIENCE) : TimeUnit.MINUTES.toNanos(LEAVES));
                hurry = lost ? next : next + TimeUnit.SECONDS.toNanos(PATIENCE);
            }

            void ask(Callable<BlockManagerId> question) {
                answer = new FutureTask<>(question);
                settled();
            }

            boolean due() { return next - System.nanoTime() <= 0 && end - next > 0; }
            void settled() { next = end; }
            void later() {
                next = System.nanoTime() + pause;
                pause = Math.min(2 * pause, TimeUnit.SECONDS.toNanos(hurry - next > 0 ? 2 : 8));
            }
        }

        /** Which of some outputs' files somebody is known to have: the node, and how it landed there. Null: the agent, or an older one, does not say. */
        private Map<String, String[]> held(int shuffle, Set<Long> maps) {
            StringBuilder ids = new StringBuilder();
            for (long map : maps) ids.append(setting("spark.lifeboat.store", "spark")).append('/').append(app()).append('/').append(file(shuffle, map)).append('\n');
            try {
                String answer = ask("POST /blocks/ HTTP/1.1\r\nHost: agent\r\nContent-Length: " + ids.length() + "\r\n\r\n" + ids);
                if (!answer.startsWith("200", 9)) return null;
                Map<String, String[]> held = new HashMap<>();
                for (Matcher at = PLACE.matcher(answer); at.find(); ) held.put(at.group(1), new String[] {at.group(2), at.group(3) == null ? "" : at.group(3)});
                return held;
            } catch (IOException e) { // each is asked about, too
                return null;
            }
        }

        /** Where readers are to look for a file; null: it is nowhere, and must be computed anew. */
        private BlockManagerId where(String file, BlockManagerId was) throws IOException {
            String answer = head("/blocks/" + setting("spark.lifeboat.store", "spark") + "/" + app() + "/" + file);
            String node = header(answer, "Lifeboat-Node");
            if (answer.startsWith("404", 9) || answer.startsWith("410", 9)) return null;
            if (!answer.startsWith("200", 9)) throw new IOException("the agent says " + answer.lines().findFirst().orElse("nothing"));
            if (node.startsWith("fallback:")) { // where executors do not look unless they are told of it, nor for what is an attempt's
                return setting("spark.storage.decommission.fallbackStorage.path", "").isEmpty() || !app().equals(setting("spark.app.id", "")) ? null : FallbackStorage.FALLBACK_BLOCK_MANAGER_ID();
            }
            if (node.isEmpty()) node = setting("spark.driver.host", ""); // the agent that was asked has it itself
            return at(node, header(answer, "Lifeboat-Landed"), was);
        }

        /** Where readers are to look for a file that a node has. */
        private BlockManagerId at(String node, String landed, BlockManagerId was) throws NotYet {
            if (landed.isEmpty()) throw new NotYet("it is still where it was born: it may be carried away yet");
            if (landed.equals("vault")) throw new NotYet(node + " has not made it a file yet");
            if (was.executorId().equals(EXECUTOR + node)) throw new NotYet("it was not found at " + node + ", where it is: it may be carried on yet");
            if (setting("spark.lifeboat.dirs", "").isEmpty() && fetches.get() <= 0) return null; // nobody serves what lies there
            return BlockManagerId.apply(EXECUTOR + node, node, Integer.parseInt(setting("spark.shuffle.service.port", "7337")), Option.empty());
        }

        /** Sees to it that the shuffle service of a node knows where Lifeboat puts the files of this application. One that is silent holds up nobody but who reads there. */
        private void told(String host, int port, long until) throws InterruptedException, ExecutionException, TimeoutException {
            if (registered.containsKey(host)) return;
            FutureTask<Integer> word = words.computeIfAbsent(host, id -> {
                FutureTask<Integer> told = new FutureTask<>(() -> {
                    try {
                        tell(host, port);
                        return registered.put(host, port);
                    } finally {
                        telling.schedule(() -> words.remove(host), SILENT, TimeUnit.SECONDS);
                    }
                });
                asking.execute(told);
                return told;
            });
            word.get(until - System.nanoTime(), TimeUnit.NANOSECONDS);
        }

        /**
         * Reports whether the shuffle service of a node serves what is there. That of a NodeManager has the secret of an application only
         * where an executor of it has started (spark.authenticate). The driver fetches what nobody serves, while it may.
         */
        private boolean serves(BlockManagerId at, long until) throws InterruptedException, ExecutionException, TimeoutException {
            try {
                told(at.host(), at.port(), until);
                return true;
            } catch (ExecutionException e) {
                if (fetches.get() <= 0) throw e;
                if (unserved.add(at.host())) log.warn("No shuffle service serves what Lifeboat put at {}: the driver fetches it and serves it, while spark.lifeboat.fetch lasts", at.host(), e.getCause());
                return false;
            }
        }

        /** Brings a map output to the driver's own disk, through the agent: executors read it here as they read each other's, until its shuffle ends. */
        private BlockManagerId fetch(int shuffle, long map, Shuffle known) throws IOException {
            BlockManager own = SparkEnv.get().blockManager();
            byte[] index;
            try (Body body = get(file(shuffle, map))) {
                index = body.in.readNBytes((int) body.bytes);
                if (index.length != body.bytes || index.length < Long.BYTES) throw new EOFException(file(shuffle, map) + " broke off");
            }
            long bytes = ByteBuffer.wrap(index).getLong(index.length - Long.BYTES), all = index.length + bytes; // where the last partition ends
            try {
                if (fetches.addAndGet(-all) < 0) throw new IOException("the driver has fetched as much as it may: raise spark.lifeboat.fetch");
                if (bytes > 0) {
                    try (Body body = get(file(shuffle, map).replace(".index", ".data"))) {
                        if (body.bytes != bytes) throw new IOException("the data has " + body.bytes + " bytes, its index says " + bytes);
                        store(own, new ShuffleDataBlockId(shuffle, map, 0), body.in, bytes);
                    }
                }
                store(own, new ShuffleIndexBlockId(shuffle, map, 0), new ByteArrayInputStream(index), index.length); // with which Spark knows of it
            } catch (Throwable e) {
                fetches.addAndGet(all);
                throw e;
            }
            synchronized (known.fetched) {
                Long before = known.fetched.put(map, all);
                if (before != null) fetches.addAndGet(before); // it is in that one's place
                if (known.over) drop(shuffle, known);
            }
            return own.blockManagerId();
        }

        /** Removes what was fetched of a shuffle that is over, which Spark itself does since 4.0, and lets as much be fetched again. */
        private boolean drop(int shuffle, Shuffle known) {
            synchronized (known.fetched) {
                known.over = true;
                known.fetched.forEach((map, bytes) -> {
                    if (SparkEnv.get().blockManager().migratableResolver() instanceof IndexShuffleBlockResolver files) files.removeDataByMap(shuffle, map);
                    fetches.addAndGet(bytes);
                });
                known.fetched.clear();
            }
            return true;
        }

        private static void store(BlockManager own, BlockId block, InputStream from, long bytes) throws IOException {
            StreamCallbackWithID file = own.migratableResolver().putShuffleBlockAsStream(block, own.serializerManager());
            try {
                byte[] part = new byte[64 << 10];
                for (int n; bytes > 0; bytes -= n) {
                    n = from.read(part, 0, (int) Math.min(part.length, bytes));
                    if (n < 0) throw new EOFException(block + " broke off");
                    file.onData(block.name(), ByteBuffer.wrap(part, 0, n));
                }
                file.onComplete(block.name());
            } catch (Throwable e) {
                file.onFailure(block.name(), e);
                throw e;
            }
        }

        /** A shuffle service that began anew may know of nobody, as that of a NodeManager without recovery. */
        private void tellAgain() {
            registered.forEach((host, port) -> asking.execute(() -> {
                try {
                    tell(host, port);
                } catch (Throwable e) { // of any kind: it is told again
                }
            }));
        }

        private void tell(String host, int port) throws IOException, InterruptedException {
            if (setting("spark.lifeboat.dirs", "").isEmpty()) throw new IOException("spark.lifeboat.dirs is not set: it cannot be told of Lifeboat's directories");
            boolean authenticated = SparkEnv.get().securityManager().isAuthenticationEnabled();
            TransportConf conf = new TransportConf("shuffle", new MapConfigProvider(Map.of("spark.shuffle.io.connectionCreationTimeout", "5s", "spark.network.auth.rpcTimeout", "5s")));
            try (ExternalBlockStoreClient client = new ExternalBlockStoreClient(conf, SparkEnv.get().securityManager(), authenticated, 5000)) {
                client.init(setting("spark.app.id", ""));
                client.registerWithShuffleServer(host, port, EXECUTOR + host, new ExecutorShuffleInfo(landed(), 64, "org.apache.spark.shuffle.sort.SortShuffleManager"));
            }
        }

        private static String socket() { return setting("spark.lifeboat.socket", "/run/lifeboat/agent.sock"); }

        /** What is in a file of the application's, wherever it is. */
        private static final class Body implements Closeable {
            final InputStream in;
            long bytes;

            Body(InputStream in) { this.in = in; }

            @Override public void close() throws IOException { in.close(); }
        }

        private Body get(String file) throws IOException {
            SocketChannel to = SocketChannel.open(UnixDomainSocketAddress.of(socket()));
            Body body = new Body(new BufferedInputStream(Channels.newInputStream(to), 64 << 10));
            try {
                String request = "GET /blocks/" + setting("spark.lifeboat.store", "spark") + "/" + app() + "/" + file + " HTTP/1.0\r\nHost: agent\r\n\r\n";
                for (ByteBuffer all = StandardCharsets.US_ASCII.encode(request); all.hasRemaining(); ) to.write(all);
                StringBuilder head = new StringBuilder();
                for (int c; head.indexOf("\r\n\r\n") < 0 && (c = body.in.read()) >= 0; ) head.append((char) c);
                if (head.indexOf("200") != 9) throw new IOException("the agent, asked for " + file + ", says " + head.toString().lines().findFirst().orElse("nothing"));
                body.bytes = Long.parseLong(header(head.toString(), "Content-Length"));
                return body;
            } catch (Throwable e) {
                body.close();
                throw e;
            }
        }

        /** The agent's answer to HEAD: the status line and the headers. */
        private String head(String path) throws IOException { return ask("HEAD " + path + " HTTP/1.1\r\nHost: agent\r\n\r\n"); }

        private String ask(String request) throws IOException {
            SocketChannel kept = agent.get();
            agent.remove();
            if (kept != null) {
                try {
                    return ask(kept, request);
                } catch (IOException e) { // it was closed meanwhile
                }
            }
            return ask(SocketChannel.open(UnixDomainSocketAddress.of(socket())), request);
        }

        private String ask(SocketChannel to, String request) throws IOException {
            try {
                for (ByteBuffer all = StandardCharsets.US_ASCII.encode(request); all.hasRemaining(); ) to.write(all);
                ByteBuffer part = ByteBuffer.allocate(16 << 10);
                StringBuilder said = new StringBuilder();
                for (int whole = -1; to.read(part.clear()) > 0; ) {
                    said.append(StandardCharsets.US_ASCII.decode(part.flip()));
                    int head = said.indexOf("\r\n\r\n") + 4;
                    if (whole < 0 && head >= 4) whole = request.startsWith("HEAD") ? head : head + Integer.parseInt(header(said.substring(0, head), "Content-Length"));
                    if (said.length() != whole) continue;
                    agent.set(to);
                    return said.toString();
                }
                throw new IOException("the agent broke off amid an answer");
            } catch (Throwable e) {
                to.close();
                throw e;
            }
        }
    }

    /**
     * What is cached on executors' disks, as the driver's books have it: a partition on an executor's disk is also at the shuffle service of
     * its host, where it stays when the executor has gone. So what Lifeboat has put at a peer is entered as of an executor there, and that
     * executor as gone. From then on Spark does with it what it does with its own: it reads it, and removes it by the shuffle service.
     */
    private static final class Cached extends SparkListener {
        private static final int NOBODY = 1; // the port of an executor that is none
        /** Takes a partition off an executor's disk, and off its shuffle service: NONE would leave it there (SPARK-47702). */
        private static final StorageLevel GONE = StorageLevel.apply(true, false, false, false, 0);

        final Map<BlockManagerId, Map<RDDBlockId, Kept>> disks = new ConcurrentHashMap<>();
        private final SparkContext spark;

        Cached(SparkContext spark) { this.spark = spark; }

        @Override public void onBlockUpdated(SparkListenerBlockUpdated event) {
            BlockUpdatedInfo now = event.blockUpdatedInfo();
            if (!(now.blockId() instanceof RDDBlockId)) return;
            Map<RDDBlockId, Kept> disk = disks.computeIfAbsent(now.blockManagerId(), id -> new ConcurrentHashMap<>());
            if (now.storageLevel().isValid() && now.storageLevel().useDisk()) disk.put((RDDBlockId) now.blockId(), new Kept(now.diskSize()));
            else disk.remove(now.blockId());
        }

        @Override public void onUnpersistRDD(SparkListenerUnpersistRDD event) {
            disks.values().forEach(disk -> disk.keySet().removeIf(id -> id.rddId() == event.rddId()));
        }

        /** Enters that partitions are no more where they were, but at a peer. There are always some who have them: of what nobody has, Spark forgets more. */
        void move(BlockManagerId was, BlockManagerId to, Map<RDDBlockId, Kept> blocks) {
            boolean gone = books().getExecutorEndpointRef(was.executorId()).isEmpty(); // or one of Lifeboat's
            BlockManagerId there = arrive(BlockManagerId.apply(to.executorId(), to.host(), NOBODY, Option.empty()));
            if (gone) was = arrive(was);
            for (Map.Entry<RDDBlockId, Kept> block : blocks.entrySet()) {
                update(there, block.getKey(), StorageLevel.DISK_ONLY(), block.getValue().bytes);
                update(was, block.getKey(), GONE, 0);
            }
            leave(there);
            if (gone) leave(was);
        }

        private BlockManagerId arrive(BlockManagerId executor) {
            RpcEndpointRef driver = books().getExecutorEndpointRef("driver").get(); // answers what an executor with nothing would
            return books().registerBlockManager(executor, landed(), 0, 0, driver, false);
        }

        private void leave(BlockManagerId executor) {
            books().removeExecutor(executor.executorId());
            spark.listenerBus().post(new SparkListenerExecutorRemoved(System.currentTimeMillis(), executor.executorId(), "Lifeboat told what it had"));
        }

        /** Spark's own method has a parameter more in some versions: the checksum of a partition of a local checkpoint, which was sealed with it. */
        private static void update(BlockManagerId at, BlockId block, StorageLevel level, long bytes) {
            try {
                for (Method update : BlockManagerMaster.class.getMethods()) {
                    if (!update.getName().equals("updateBlockInfo")) continue;
                    if (update.getParameterCount() == 5) update.invoke(books(), at, block, level, 0L, bytes);
                    else update.invoke(books(), at, block, level, 0L, bytes, BlockManagerMaster.class.getMethod("getSealedChecksum", BlockId.class).invoke(books(), block));
                }
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException("tell the driver of " + block + " at " + at + ": this plugin does not know this Spark", e);
            }
        }

        private static BlockManagerMaster books() { return SparkEnv.get().blockManager().master(); }
    }

    /** A cached partition on a disk. */
    private static final class Kept {
        final long bytes;
        Driver.Asked asked;

        Kept(long bytes) { this.bytes = bytes; }
    }

    /** Tells the coordinators, on a thread of its own, that the application lives: an agent that hangs would not let it be said in time. */
    private static final class Life {
        /** The application may be silent for as long: four beats may fail. */
        private static final String BEAT = "beat?lease=5m";
        private static final int WAIT = 5000, FAREWELL = 10000; // milliseconds
        private static final int QUIET = 60_000; // of events: then they are asked for anew, after the last
        private static final Pattern NODE = Pattern.compile("\"node\":\"([^\"]+)\"");
        private static final int HEARD = 204, NOBODY = 0;

        private final ScheduledExecutorService thread = daemon("lifeboat-life");
        private final SparkConf conf = SparkEnv.get().conf();
        private final String app;
        private int was = HEARD; // what came of the word before

        Life(String app, Consumer<String> leaves, Consumer<String> stays) {
            this.app = app;
            daemon(() -> follow(leaves, stays), "lifeboat-events").start();
            thread.scheduleWithFixedDelay(() -> say(BEAT), 0, 1, TimeUnit.MINUTES);
        }

        void end() {
            thread.execute(() -> say("over"));
            thread.shutdown(); // no more beats
            try {
                thread.awaitTermination(FAREWELL, TimeUnit.MILLISECONDS);
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

        /** Follows what happens to the fleet, at the coordinator that leads, and tells of hosts that are to leave, and that stay after all. The others say that they do not lead. */
        private void follow(Consumer<String> leaves, Consumer<String> stays) {
            String after = "";
            while (!thread.isShutdown()) {
                for (String at : conf.get("spark.lifeboat.coordinators").split(",")) {
                    try (SSLSocket coordinator = ask(at.trim(), "GET /events?type=WorkerDecommission&type=NodeRecommissioned" + after)) {
                        coordinator.setSoTimeout(QUIET);
                        BufferedReader events = new BufferedReader(new InputStreamReader(coordinator.getInputStream(), StandardCharsets.UTF_8));
                        for (String line = events.readLine(); line != null; line = events.readLine()) {
                            if (line.startsWith("id:")) after = "&after=" + line.substring(3).trim();
                            Matcher node = NODE.matcher(line);
                            boolean back = line.contains("\"type\":\"NodeRecommissioned\"") && !line.contains("\"still\":");
                            if (line.startsWith("data:") && node.find()) (back ? stays : leaves).accept(node.group(1));
                        }
                    } catch (Throwable e) { // the beats say who is not heard
                    }
                }
                try {
                    Thread.sleep(1000);
                } catch (InterruptedException e) {
                    return;
                }
            }
        }

        /** A coordinator's answer, with its headers. */
        private String post(String at, String path) throws IOException, GeneralSecurityException {
            try (SSLSocket coordinator = ask(at, "POST " + path)) {
                return new String(coordinator.getInputStream().readNBytes(16 << 10), StandardCharsets.UTF_8);
            }
        }

        private SSLSocket ask(String at, String what) throws IOException, GeneralSecurityException {
            String host = at.substring(0, at.lastIndexOf(':'));
            int port = Integer.parseInt(at.substring(host.length() + 1));
            SSLSocketFactory tls = tls(); // a busy JVM takes seconds the first time, and a coordinator waits ten for the handshake of a connection
            Socket plain = new Socket(Proxy.NO_PROXY);
            try {
                plain.connect(new InetSocketAddress(host, port), WAIT);
                plain.setSoTimeout(WAIT);
                SSLSocket coordinator = (SSLSocket) tls.createSocket(plain, host, port, true);
                coordinator.startHandshake();
                verify((X509Certificate) coordinator.getSession().getPeerCertificates()[0]);
                coordinator.getOutputStream().write((what + " HTTP/1.0\r\nContent-Length: 0\r\n\r\n").getBytes(StandardCharsets.US_ASCII));
                return coordinator;
            } catch (Throwable e) {
                plain.close();
                throw e;
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

    private static ScheduledExecutorService daemon(String name) { return Executors.newSingleThreadScheduledExecutor(work -> daemon(work, name)); }

    private static Thread daemon(Runnable work, String name) {
        Thread t = new Thread(work, name);
        t.setDaemon(true);
        return t;
    }

    /**
     * What Lifeboat knows the application by. An attempt of YARN's after the first is another one to it: its driver counts shuffles and maps from 0
     * again, and what the one before wrote under the same names is not what it asks for.
     */
    private static String app() {
        String app = setting("spark.app.id", "");
        int attempt = Integer.parseInt(setting("spark.app.attempt.id", "1"));
        return attempt < 2 ? app : app.replaceFirst("^application", "appattempt") + String.format("_%06d", attempt);
    }

    /** Where Lifeboat puts the files of this application. */
    private static String[] landed() {
        return Arrays.stream(setting("spark.lifeboat.dirs", "").split(",")).map(dir -> dir + "/" + app() + "/blockmgr-lifeboat").toArray(String[]::new);
    }

    private static String setting(String key, String otherwise) { return SparkEnv.get().conf().get(key, otherwise); }

    private static String header(String answer, String name) {
        return answer.lines().filter(line -> line.regionMatches(true, 0, name + ":", 0, name.length() + 1))
            .map(line -> line.substring(name.length() + 1).trim()).findFirst().orElse("");
    }
}
