import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.RDDBlockId;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.util.LongAccumulator;
import scala.Tuple2;
import scala.collection.JavaConverters;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * The driver of a Spark application with two executors, which keep partitions on their disks. It is told on its standard input what to do,
 * and answers each line with one.
 *
 * <pre>
 * Cache MASTER [KEY=VALUE]...
 *   sum    sums all partitions up, and says how many were computed for that
 *   where  the hosts at which the driver believes partitions to be
 *   drop   has Spark keep them no more
 * </pre>
 */
public final class Cache {
    private static final int PARTITIONS = 12;
    private static final List<String> HOSTS = List.of("127.0.0.1", "localhost"); // of the executors, which prefer them in turn

    public static void main(String[] args) throws Exception {
        SparkConf conf = new SparkConf().setMaster(args[0]).setAppName("cache").set("spark.ui.enabled", "false");
        for (int i = 1; i < args.length; i++) conf.set(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        JavaSparkContext spark = new JavaSparkContext(conf);
        spark.setLogLevel("WARN");
        LongAccumulator computed = spark.sc().longAccumulator();
        List<Tuple2<Integer, Seq<String>>> numbers = new ArrayList<>();
        for (int i = 0; i < PARTITIONS; i++) numbers.add(new Tuple2<>(i, seq(List.of(HOSTS.get(i % 2)))));
        ClassTag<Integer> integers = ClassTag$.MODULE$.apply(Integer.class);
        JavaRDD<Integer> cached = JavaRDD.fromRDD(spark.sc().makeRDD(seq(numbers), integers), integers).map(i -> {
            computed.add(1);
            return i;
        }).persist(StorageLevel.DISK_ONLY());
        while (spark.sc().getExecutorMemoryStatus().size() < 3) Thread.sleep(50); // the driver has some, too
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                System.out.println(answer(line, cached, computed));
            } catch (Throwable e) {
                System.out.println("failed: " + e.toString().replace('\n', ' '));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static <T> Seq<T> seq(List<T> list) { return JavaConverters.asScalaBuffer(list).toSeq(); }

    private static String answer(String what, JavaRDD<Integer> cached, LongAccumulator computed) {
        switch (what) {
            case "sum":
                computed.reset();
                return cached.reduce(Integer::sum) + " with " + computed.value() + " computed";
            case "where":
                RDDBlockId[] all = IntStream.range(0, PARTITIONS).mapToObj(p -> new RDDBlockId(cached.id(), p)).toArray(RDDBlockId[]::new);
                return Arrays.stream(all).flatMap(id -> JavaConverters.seqAsJavaList(SparkEnv.get().blockManager().master().getLocations(id)).stream())
                    .map(BlockManagerId::host).collect(Collectors.toCollection(TreeSet::new)).toString();
            case "drop":
                cached.unpersist(true);
                return "dropped";
            default:
                return "failed: no such command: " + what;
        }
    }
}
