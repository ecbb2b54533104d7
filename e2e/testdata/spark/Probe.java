import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import java.util.zip.Adler32;

import org.apache.spark.HashPartitioner;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.network.shuffle.ExternalShuffleBlockResolver;
import org.apache.spark.network.shuffle.checksum.Cause;
import org.apache.spark.network.shuffle.protocol.ExecutorShuffleInfo;
import org.apache.spark.network.util.MapConfigProvider;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.shuffle.IndexShuffleBlockResolver;
import org.apache.spark.shuffle.ShuffleBlockInfo;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.FallbackStorage;
import org.apache.spark.storage.RDDBlockId;
import org.apache.spark.storage.ShuffleBlockId;
import org.apache.spark.storage.StorageLevel;
import scala.Option;
import scala.Tuple2;
import scala.collection.JavaConverters;

/**
 * A Spark application with one executor, which is told on its standard input what to do and answers each line with one: what it
 * was asked for, or "failed: ..." with the reason. Spark's own classes write all that is on disk here, and read what others
 * have put anywhere.
 *
 * <pre>
 * Probe LOCAL_DIRS APP FALLBACK [KEY=VALUE]...   local directories with commas between; the directory that Spark's fallback storage is
 *                      to be in; other settings
 *   blocks             the names of all that is committed on disk, with spaces between
 *   spare DIR          has Spark itself put every map output into a fallback storage in DIR, and the driver hear of it
 *   fallback DIR       reads every partition from the fallback storage in DIR but the empty ones, which Spark does not ask for
 *   service DIRS       reads every partition, and the cached ones, as the external shuffle service does for an executor with these local
 *                      directories, and has it compare the checksum files
 *   work N             runs N jobs more, of which every other one's files go as Spark cleans up
 *   lose               has the driver lose its executor, and says when it knows where all map outputs are, or that it does not learn it
 *   again              runs the jobs once more whose maps are done, and says whether the results are the same, and how many map tasks ran
 *   setting KEY        what it goes by
 * </pre>
 */
public final class Probe {
    private static final int MAPS = 12, REDUCERS = 7, RECORDS = 4000;

    private final JavaSparkContext spark;
    private final String app;
    private final IndexShuffleBlockResolver resolver;
    private final JavaPairRDD<Integer, Long> sums, few;
    private final JavaRDD<String> cached;
    private final Map<String, Long> tasks = new TreeMap<>();
    private final Map<ShuffleBlockId, byte[]> partitions = new LinkedHashMap<>();
    private final Map<RDDBlockId, byte[]> kept = new LinkedHashMap<>();
    private final List<JavaPairRDD<Integer, Long>> worked = new ArrayList<>();
    private final long want;

    private Probe(String localDirs, String app, String fallback, List<String> settings) throws Exception {
        this.app = app;
        SparkConf conf = new SparkConf().setMaster("local[2]").setAppName("probe")
            .set("spark.local.dir", localDirs)
            .set("spark.ui.enabled", "false")
            .set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
            .set("spark.storage.decommission.fallbackStorage.path", uri(fallback));
        for (String s : settings) conf.set(s.split("=", 2)[0], s.split("=", 2)[1]);
        spark = new JavaSparkContext(conf);
        spark.setLogLevel("ERROR");
        // The id that a cluster manager gives, whose directories bear it. What is local has one by the clock, known too late.
        SparkEnv.get().conf().set("spark.app.id", app);
        Field known = BlockStoreClient.class.getDeclaredField("appId");
        known.setAccessible(true);
        known.set(SparkEnv.get().blockManager().blockStoreClient(), app);
        spark.sc().addSparkListener(new SparkListener() {
            @Override public void onTaskEnd(SparkListenerTaskEnd end) {
                synchronized (tasks) { tasks.merge(end.taskType(), 1L, Long::sum); }
            }
        });
        sums = numbers(RECORDS).mapToPair(i -> new Tuple2<>(i % 1000, (long) i)).reduceByKey(new HashPartitioner(REDUCERS), Long::sum);
        few = numbers(3).mapToPair(i -> new Tuple2<>(i, (long) i)).reduceByKey(new HashPartitioner(REDUCERS), Long::sum); // most maps have nothing
        cached = numbers(RECORDS).map(i -> "record " + i).persist(StorageLevel.DISK_ONLY());
        cached.count();
        want = total();
        resolver = (IndexShuffleBlockResolver) SparkEnv.get().blockManager().migratableResolver();
        for (ShuffleBlockInfo s : stored()) {
            for (int r = 0; r < REDUCERS; r++) {
                ShuffleBlockId id = new ShuffleBlockId(s.shuffleId(), s.mapId(), r);
                partitions.put(id, bytes(resolver.getBlockData(id, Option.empty())));
            }
        }
        for (int p = 0; p < MAPS; p++) {
            RDDBlockId id = new RDDBlockId(cached.id(), p);
            kept.put(id, Files.readAllBytes(file(id).toPath()));
        }
    }

    private JavaRDD<Integer> numbers(int n) {
        List<Integer> all = new ArrayList<>();
        IntStream.range(0, n).forEach(all::add);
        return spark.parallelize(all, MAPS);
    }

    private long total() {
        return sums.values().reduce(Long::sum) + few.values().reduce(Long::sum);
    }

    private List<ShuffleBlockInfo> stored() { return JavaConverters.seqAsJavaList(resolver.getStoredShuffles()); }

    private static File file(BlockId id) { return SparkEnv.get().blockManager().diskBlockManager().getFile(id); }

    private static byte[] bytes(ManagedBuffer b) throws IOException {
        if (b.size() == 0) return new byte[0]; // of a map that made nothing there is no data file
        try (InputStream in = b.createInputStream()) { return in.readAllBytes(); }
    }

    private String blocks() {
        List<String> all = new ArrayList<>();
        for (ShuffleBlockInfo s : stored()) all.add("shuffle_" + s.shuffleId() + "_" + s.mapId() + "_0");
        for (RDDBlockId id : kept.keySet()) if (file(id).exists()) all.add(id.name());
        return String.join(" ", all);
    }

    private String spare(String dir) {
        FallbackStorage storage = new FallbackStorage(fallbackIn(dir));
        for (ShuffleBlockInfo s : stored()) storage.copy(s, SparkEnv.get().blockManager());
        return "copied " + stored().size();
    }

    private SparkConf fallbackIn(String dir) {
        return SparkEnv.get().conf().clone().set("spark.storage.decommission.fallbackStorage.path", uri(dir));
    }

    private static String uri(String dir) { return "file:" + dir + "/"; } // Spark wants the separator

    private interface Reader { ManagedBuffer read(ShuffleBlockId id) throws Exception; }

    private String compare(boolean empty, Reader from) throws Exception {
        int read = 0;
        for (Map.Entry<ShuffleBlockId, byte[]> p : partitions.entrySet()) {
            if (p.getValue().length == 0 && !empty) continue;
            byte[] got = bytes(from.read(p.getKey()));
            if (!Arrays.equals(got, p.getValue())) {
                throw new IOException(p.getKey() + ": got " + got.length + " bytes, not the " + p.getValue().length + " that were written");
            }
            read++;
        }
        return "read " + read + " of " + partitions.size();
    }

    private String service(String dirs) throws Exception {
        TransportConf conf = new TransportConf("shuffle", new MapConfigProvider(Map.of("spark.shuffle.service.fetch.rdd.enabled", "true")));
        ExternalShuffleBlockResolver service = new ExternalShuffleBlockResolver(conf, null);
        service.registerExecutor(app, "1", new ExecutorShuffleInfo(dirs.split(","), 64, "org.apache.spark.shuffle.sort.SortShuffleManager"));
        String said = compare(true, id -> service.getBlockData(app, "1", id.shuffleId(), id.mapId(), id.reduceId()));
        int sums = 0;
        for (Map.Entry<ShuffleBlockId, byte[]> p : partitions.entrySet()) {
            if (p.getValue().length == 0) continue;
            Adler32 sum = new Adler32();
            sum.update(p.getValue());
            ShuffleBlockId id = p.getKey();
            Cause cause = service.diagnoseShuffleBlockCorruption(app, "1", id.shuffleId(), id.mapId(), id.reduceId(), sum.getValue(), "ADLER32");
            if (cause != Cause.CHECKSUM_VERIFY_PASS) throw new IOException(id + ": the checksum file says " + cause);
            sums++;
        }
        for (Map.Entry<RDDBlockId, byte[]> k : kept.entrySet()) {
            RDDBlockId id = k.getKey();
            if (!Arrays.equals(bytes(service.getRddBlockData(app, "1", id.rddId(), id.splitIndex())), k.getValue())) {
                throw new IOException(id + ": other bytes than were cached");
            }
        }
        return said + " verified " + sums + " cached " + kept.size();
    }

    private String lose() throws Exception {
        MapOutputTrackerMaster tracker = (MapOutputTrackerMaster) SparkEnv.get().mapOutputTracker();
        tracker.removeOutputsOnHost("127.0.0.1");
        spark.sc().listenerBus().post(new SparkListenerExecutorRemoved(System.currentTimeMillis(), "driver", "its machine is gone"));
        for (int tries = 0; tries < 300; tries++) {
            if (tracker.getNumAvailableOutputs(0) == MAPS && tracker.getNumAvailableOutputs(1) == MAPS) return "found";
            Thread.sleep(100);
        }
        return "has " + tracker.getNumAvailableOutputs(0) + " and " + tracker.getNumAvailableOutputs(1) + " of " + MAPS;
    }

    private String again() throws Exception {
        synchronized (tasks) { tasks.clear(); }
        long got = total();
        spark.sc().listenerBus().waitUntilEmpty();
        synchronized (tasks) {
            return (got == want ? "right" : "wrong: " + got + ", not " + want) + " after " + tasks.getOrDefault("ShuffleMapTask", 0L) + " map tasks";
        }
    }

    private String work(int jobs) throws Exception {
        for (int i = 0; i < jobs; i++) {
            int each = i;
            JavaPairRDD<Integer, Long> more = numbers(RECORDS).mapToPair(n -> new Tuple2<>(n % 500, (long) n * each)).reduceByKey(new HashPartitioner(REDUCERS), Long::sum);
            more.count();
            if (i % 2 == 0) worked.add(more);
            else System.gc(); // Spark's cleaner waits for that
        }
        Thread.sleep(2000); // for what it removes
        return "worked";
    }

    private String answer(String line) {
        String[] words = line.split(" ", 2);
        try {
            switch (words[0]) {
                case "blocks": return blocks();
                case "spare": return spare(words[1]);
                case "fallback": return compare(false, id -> FallbackStorage.read(fallbackIn(words[1]), (BlockId) id));
                case "service": return service(words[1]);
                case "work": return work(Integer.parseInt(words[1]));
                case "lose": return lose();
                case "again": return again();
                case "setting": return spark.getConf().get(words[1], "unset");
                default: return "failed: no such command: " + line;
            }
        } catch (Throwable e) {
            return "failed: " + e.toString().replace('\n', ' ');
        }
    }

    public static void main(String[] args) throws Exception {
        Probe probe = new Probe(args[0], args[1], args[2], Arrays.asList(args).subList(3, args.length));
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) System.out.println(probe.answer(line));
        Runtime.getRuntime().halt(0); // as a machine goes: nothing is cleaned up
    }
}
