"""The JVM's half of a file index: what Spark asks for again and again is answered without a call to Python.

Planning one query asks a `FileIndex` a dozen times for its location, its schema and its equals, and each question to
Python costs a quarter of a millisecond. So the object in the plan is a small class of the JVM, compiled once by
Janino, the compiler that Spark generates its own code with. It knows those answers, keeps the newest listings, and asks
Python only for files: one call, in which the filters travel as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.spark.jvm import DATASOURCES, JavaObject, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.file_index import PythonFileIndex

_FACTORY = "headwater.FileIndexes"
_SOURCE = """
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
"""


def jvm_file_index(spark: SparkSession, index: PythonFileIndex) -> JavaObject:
    """The `FileIndex` to put into a plan. It keeps the one of Python for as long as the plan lives."""
    jvm = jvm_of(spark)
    indexes = jvm.compiled(_FACTORY, _SOURCE, f"{DATASOURCES}.FileIndex")
    name, key = index.toString(), index.key
    return indexes.create(jvm.called_back(index, name, key), name, key, index.rootPaths(), index.partitionSchema())
