import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.scheduler.MergeStatus;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.util.LongAccumulator;
import org.roaringbitmap.RoaringBitmap;
import scala.Option;
import scala.Tuple2;
import scala.collection.JavaConverters;

/**
 * The driver of a Spark application of a cluster, with one shuffle. It is told on its standard input what to do, and answers each line with one.
 *
 * <pre>
 * Reduce MASTER [KEY=VALUE]...
 *   sum    sums all up, and says how many records were mapped for that
 *   where  the hosts at which the driver believes map outputs to be
 *   anew   ends the shuffle: the next sum maps all again, for another
 *   merge  enters a second shuffle, of which parts are merged at these hosts, in place of the cluster manager that has mergers
 *   merged the hosts at which the driver believes parts to be merged
 * </pre>
 */
public final class Reduce {
    public static void main(String[] args) throws Exception {
        SparkConf conf = new SparkConf().setMaster(args[0]).setAppName("reduce").set("spark.ui.enabled", "false");
        for (int i = 1; i < args.length; i++) conf.set(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        JavaSparkContext spark = new JavaSparkContext(conf);
        spark.setLogLevel("WARN");
        LongAccumulator mapped = spark.sc().longAccumulator();
        Supplier<JavaPairRDD<Integer, Long>> shuffle = () -> spark.parallelize(IntStream.range(0, 1200).boxed().collect(Collectors.toList()), 12).mapToPair(i -> {
            mapped.add(1);
            return new Tuple2<>(i % 100, (long) i);
        }).reduceByKey(Long::sum, 4);
        JavaPairRDD<Integer, Long> sums = shuffle.get();
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                if (line.equals("anew")) {
                    for (Object id : Set.copyOf(shuffles().keySet())) spark.sc().cleaner().get().doCleanupShuffle((Integer) id, true);
                    sums = shuffle.get();
                    System.out.println("ended");
                    continue;
                }
                System.out.println(answer(line, sums, mapped));
            } catch (Throwable e) {
                System.out.println("failed: " + e.toString().replace('\n', ' '));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<Object, ShuffleStatus> shuffles() {
        return JavaConverters.mapAsJavaMap(((MapOutputTrackerMaster) SparkEnv.get().mapOutputTracker()).shuffleStatuses());
    }

    private static String answer(String line, JavaPairRDD<Integer, Long> sums, LongAccumulator mapped) {
        String what = line.split(" ", 2)[0];
        String[] hosts = line.substring(what.length()).trim().split(" ");
        switch (what) {
            case "sum":
                mapped.reset();
                return sums.values().reduce(Long::sum) + " of " + mapped.value() + " mapped";
            case "where":
                return shuffles().values().stream()
                    .flatMap(shuffle -> Arrays.stream(shuffle.mapStatuses())).map(output -> output == null ? "nowhere" : output.location().host())
                    .collect(Collectors.toCollection(TreeSet::new)).toString();
            case "merge":
                ShuffleStatus status = new ShuffleStatus(0, hosts.length, false);
                for (int i = 0; i < hosts.length; i++) status.addMergeResult(i, MergeStatus.apply(BlockManagerId.apply("shuffle-push-merger", hosts[i], 7337, Option.empty()), 0, new RoaringBitmap(), 1));
                ((MapOutputTrackerMaster) SparkEnv.get().mapOutputTracker()).shuffleStatuses().put(99, status);
                return "entered";
            case "merged":
                return Arrays.stream(shuffles().get(99).mergeStatuses()).filter(Objects::nonNull).map(part -> part.location().host()).collect(Collectors.toCollection(TreeSet::new)).toString();
            default:
                return "failed: no such command: " + what;
        }
    }
}
