import org.apache.spark.launcher.JavaModuleOptions;

/** Prints what a JVM of Spark needs on its command line, as this Spark says. */
public final class Options {
    public static void main(String[] args) { System.out.println(JavaModuleOptions.defaultModuleOptions()); }
}
