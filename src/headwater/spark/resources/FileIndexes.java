// The JVM's half of a file index: it answers what Spark asks again and again without a call to Python.
//
// Planning one query asks a FileIndex a dozen times for its location, its schema and its equality, and each question to
// Python takes a quarter of a millisecond. This class knows those answers, keeps the newest listings, and asks Python
// only for files: one call, in which the filters travel as JSON. Janino, the compiler of Spark's own generated code,
// compiles it when the first table is read; it knows neither generics nor lambdas.
package headwater;

import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.types.StructType;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

final class KeptFileIndex implements FileIndex {
    private static final int MAX_KEPT = 16;

    private final FileIndex python;
    private final String name;
    private final String key;
    private final Seq rootPaths;
    private final StructType partitionSchema;
    private final ConcurrentHashMap listings = new ConcurrentHashMap();

    KeptFileIndex(FileIndex python, String name, String key, Seq rootPaths, StructType partitionSchema) {
        this.python = python;
        this.name = name;
        this.key = key;
        this.rootPaths = rootPaths;
        this.partitionSchema = partitionSchema;
    }

    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        Tuple2 filters = new Tuple2(partitionFilters, dataFilters);
        Seq listing = (Seq) listings.get(filters);
        if (listing == null) {
            String texts = "[" + json(partitionFilters) + ", " + json(dataFilters) + "]";
            listing = (Seq) ((BiFunction) python).apply(texts, filters);
            if (listings.size() >= MAX_KEPT) {
                listings.clear();
            }
            listings.put(filters, listing);
        }
        return listing;
    }

    private static String json(Seq filters) {
        StringBuilder text = new StringBuilder("[");
        for (Iterator each = filters.iterator(); each.hasNext();) {
            text.append(text.length() > 1 ? ", " : "").append(json((Expression) each.next()));
        }
        return text.append("]").toString();
    }

    private static String json(Expression filter) {
        if (isOnMetadata(filter)) {
            return "null";
        }
        try {
            return filter.toJSON();
        } catch (RuntimeException unwritable) {
            return "null";
        }
    }

    // Spark calls the fields of its hidden column _metadata by their names (file_name, ...), as a column may be called.
    private static boolean isOnMetadata(Expression filter) {
        for (Iterator each = filter.references().iterator(); each.hasNext();) {
            if (((NamedExpression) each.next()).metadata().contains("__metadata_col")) {
                return true;
            }
        }
        return false;
    }

    public Seq rootPaths() { return rootPaths; }
    public StructType partitionSchema() { return partitionSchema; }
    public long sizeInBytes() { return python.sizeInBytes(); }
    public String[] inputFiles() { return python.inputFiles(); }
    public void refresh() { }
    public String toString() { return name; }
    public int hashCode() { return key.hashCode(); }
    public boolean equals(Object other) {
        return other instanceof KeptFileIndex && key.equals(((KeptFileIndex) other).key);
    }
}

public final class FileIndexes {
    public FileIndex create(FileIndex python, String name, String key, Seq rootPaths, StructType partitionSchema) {
        return new KeptFileIndex(python, name, key, rootPaths, partitionSchema);
    }
}
