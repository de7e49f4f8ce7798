// Names of tables in the session catalog, and locations as Hadoop understands them.
package headwater;

import java.lang.reflect.Constructor;
import java.net.URI;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;

public final class Catalogs {
    // A path as a URI with its scheme. Hadoop takes paths literally: a percent sign is one.
    public static String location(SparkSession session, String path) {
        Configuration conf = session.sessionState().newHadoopConf();
        Path working = new Path(new java.io.File("").getAbsolutePath());
        Path given = new Path(path);
        return (given.toUri().getScheme() == null ? given.makeQualified(FileSystem.getDefaultUri(conf), working) : given).toUri().toString();
    }

    // What a name of several parts stands for, as JSON: nothing, a path, a view, or a table with provider and location.
    public static String find(SparkSession session, String[] parts) {
        Tuple2 found = resolve(session, parts);
        CatalogPlugin catalog = (CatalogPlugin) found._1();
        Identifier ident = (Identifier) found._2();
        Map result = new HashMap();
        result.put("catalog", catalog.name());
        result.put("namespace", Arrays.asList(ident.namespace()));
        result.put("name", ident.name());
        String path = catalog instanceof DeltaCatalog ? DeltaCatalog.pathOf(ident) : null;
        if (path != null) {
            result.put("path", location(session, path));
        } else if (catalog instanceof TableCatalog) {
            describe((TableCatalog) catalog, ident, result);
        }
        return Python.json(result);
    }

    private static void describe(TableCatalog catalog, Identifier ident, Map result) {
        Table table;
        try {
            table = catalog.loadTable(ident);
        } catch (Exception missing) {
            return;
        }
        if (table instanceof DeltaTable) {
            result.put("provider", "delta");
            result.put("location", ((DeltaTable) table).path);
            result.put("managed", Boolean.valueOf(table instanceof NamedDeltaTable && isManaged(((NamedDeltaTable) table).v1Table())));
        } else if (table instanceof V1Table) {
            CatalogTable entry = ((V1Table) table).catalogTable();
            result.put("provider", entry.provider().isDefined() ? entry.provider().get() : "view");
            result.put("managed", Boolean.valueOf(isManaged(entry)));
            if (entry.storage().locationUri().isDefined()) {
                result.put("location", entry.location().toString());
            }
            result.put("schema", entry.schema().json());
            result.put("partitionColumns", scala.jdk.javaapi.CollectionConverters.asJava(entry.partitionColumnNames()));
        } else {
            result.put("provider", table.getClass().getName());
            result.put("location", table.properties().get("location"));
        }
    }

    private static boolean isManaged(CatalogTable entry) { return entry.tableType().equals(CatalogTableType.MANAGED()); }

    private static Tuple2 resolve(SparkSession session, String[] parts) {
        Option found = session.sessionState().analyzer().CatalogAndIdentifier().unapply(Python.seq(Arrays.asList(parts)));
        return (Tuple2) found.get();
    }

    // Whether the session has a temporary view of this name.
    public static boolean isTempView(SparkSession session, String[] parts) {
        return session.sessionState().catalog().isTempView(Python.seq(Arrays.asList(parts)));
    }

    private static TableIdentifier identifier(Identifier ident) {
        return new TableIdentifier(ident.name(), Option.apply(ident.namespace()[0]));
    }

    public static Identifier identifier(String[] namespace, String name) { return Identifier.of(namespace, name); }

    // The entry of a table in the session catalog as JSON; null if there is none.
    public static String entry(SparkSession session, Identifier ident) throws Exception {
        SessionCatalog catalog = session.sessionState().catalog();
        if (!catalog.tableExists(identifier(ident))) {
            return null;
        }
        CatalogTable entry = catalog.getTableMetadata(identifier(ident));
        Map result = new HashMap();
        result.put("provider", entry.provider().isDefined() ? entry.provider().get() : "view");
        result.put("managed", Boolean.valueOf(isManaged(entry)));
        result.put("location", entry.storage().locationUri().isDefined() ? entry.location().toString() : null);
        return Python.json(result);
    }

    public static String defaultLocation(SparkSession session, Identifier ident) {
        return session.sessionState().catalog().defaultTablePath(identifier(ident)).toString();
    }

    // Only provider and location are in the catalog: the log has the schema, and must not be contradicted.
    public static void register(SparkSession session, Identifier ident, String location, boolean isManaged, String comment) throws Exception {
        Map storage = new HashMap();
        storage.put("locationUri", Option.apply(new URI(location)));
        Object format = Plans.copy(CatalogStorageFormat.empty(), storage);
        CatalogTableType kind = isManaged ? CatalogTableType.MANAGED() : CatalogTableType.EXTERNAL();
        CatalogTable entry = table(new Object[] {identifier(ident), kind, format, new StructType(), Option.apply("delta")});
        Map more = new HashMap();
        more.put("comment", Option.apply(comment));
        more.put("tracksPartitionsInCatalog", Boolean.TRUE);
        session.sessionState().catalog().createTable((CatalogTable) Plans.copy(entry, more), false, false);
    }

    // Later fields of the case class have defaults, and their number differs between versions of Spark.
    private static CatalogTable table(Object[] first) throws Exception {
        Constructor make = CatalogTable.class.getConstructors()[0];
        Object[] arguments = Arrays.copyOf(first, make.getParameterTypes().length);
        for (int i = first.length; i < arguments.length; i++) {
            arguments[i] = CatalogTable.class.getMethod("apply$default$" + (i + 1), new Class[0]).invoke(null, new Object[0]);
        }
        return (CatalogTable) make.newInstance(arguments);
    }

    public static void setLocation(SparkSession session, Identifier ident, String location) throws Exception {
        SessionCatalog catalog = session.sessionState().catalog();
        CatalogTable entry = catalog.getTableMetadata(identifier(ident));
        Map storage = new HashMap();
        storage.put("locationUri", Option.apply(new URI(location)));
        Map changes = new HashMap();
        changes.put("storage", Plans.copy(entry.storage(), storage));
        catalog.alterTable((CatalogTable) Plans.copy(entry, changes));
    }

    public static void drop(SparkSession session, Identifier ident) throws Exception {
        session.sessionState().catalog().dropTable(identifier(ident), true, false);
    }

    // Computes cached data of a table again when it is asked for: under its name, and under its path.
    public static void refresh(SparkSession session, String path, Identifier ident) {
        recache(session, new String[] {"spark_catalog", "delta", path});
        if (ident != null && DeltaCatalog.pathOf(ident) == null) {
            String[] parts = new String[ident.namespace().length + 2];
            parts[0] = "spark_catalog";
            System.arraycopy(ident.namespace(), 0, parts, 1, ident.namespace().length);
            parts[parts.length - 1] = ident.name();
            recache(session, parts);
        }
    }

    private static void recache(SparkSession session, String[] parts) {
        Seq name = Python.seq(Arrays.asList(parts));
        Object manager = session.sharedState().cacheManager();
        java.lang.reflect.Method[] methods = manager.getClass().getMethods();
        for (int i = 0; i < methods.length; i++) {
            if (methods[i].getName().equals("recacheTableOrView")) {
                try {
                    methods[i].invoke(manager, new Object[] {session, name, Boolean.FALSE});
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            }
        }
    }
}
