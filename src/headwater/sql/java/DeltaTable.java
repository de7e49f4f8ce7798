// A Delta table as Spark's catalogs know tables. Its log is opened when Spark asks the first question about it.
package headwater;

import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.catalog.V2TableWithV1Fallback;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;

public class DeltaTable implements SupportsRead, SupportsMetadataColumns, TruncatableTable {
    final String name;
    final String path;
    final Map options;
    private Map description;
    private StructType schema;

    public DeltaTable(String name, String path, Map options) {
        this.name = name;
        this.path = path;
        this.options = options;
    }

    synchronized Map description() {
        if (description == null) {
            Map found = Python.parse((String) Python.ask("table", new Object[] {path, Python.json(options)}));
            schema = (StructType) DataType.fromJson((String) found.get("schema"));
            description = found;
        }
        return description;
    }

    // Whether the options name a version or a range of changes: such a relation never moves on to a newer version.
    boolean isPinned() { return Boolean.TRUE.equals(description().get("pinned")); }

    public String path() { return path; }
    public Map options() { return options; }
    public String name() { return name; }
    public StructType schema() { description(); return schema; }
    public Map properties() { return (Map) description().get("properties"); }
    public String version() { return String.valueOf(description().get("version")); }
    public String id() { return (String) description().get("id"); }
    // What Python has resolved: it gets the token back when it plans the scan.
    String token() { return (String) description().get("token"); }

    public Transform[] partitioning() {
        List names = (List) description().get("partitionColumns");
        List clustering = (List) description().get("clusteringColumns");
        Transform[] transforms = new Transform[names.size() + (clustering.isEmpty() ? 0 : 1)];
        for (int i = 0; i < names.size(); i++) {
            transforms[i] = Expressions.identity(quoted((String) names.get(i)));
        }
        if (!clustering.isEmpty()) {
            transforms[names.size()] = Plans.clusterBy(clustering);
        }
        return transforms;
    }

    static String quoted(String name) { return "`" + name.replace("`", "``") + "`"; }

    // ACCEPT_ANY_SCHEMA leaves the columns of writes, UPDATE and MERGE to us: schema evolution needs them as they are.
    public Set capabilities() {
        Set all = new HashSet();
        all.add(TableCapability.BATCH_READ);
        all.add(TableCapability.V1_BATCH_WRITE);
        all.add(TableCapability.ACCEPT_ANY_SCHEMA);
        all.add(TableCapability.TRUNCATE);
        all.add(TableCapability.OVERWRITE_BY_FILTER);
        all.add(TableCapability.OVERWRITE_DYNAMIC);
        return all;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) { return new TableSize(this); }

    public boolean truncateTable() {
        Python.ask("truncate", new Object[] {this});
        return true;
    }

    public MetadataColumn[] metadataColumns() { return new MetadataColumn[] {new FileMetadata()}; }

    public String toString() { return name; }

    public boolean equals(Object other) {
        if (!(other instanceof DeltaTable)) {
            return false;
        }
        DeltaTable table = (DeltaTable) other;
        return path.equals(table.path) && options.equals(table.options) && version().equals(table.version()) && id().equals(table.id());
    }

    public int hashCode() { return path.hashCode(); }
}

// A table that has a name in the session catalog. Commands of Spark that only know the old catalog use `v1Table`.
final class NamedDeltaTable extends DeltaTable implements V2TableWithV1Fallback {
    private final CatalogTable entry;

    NamedDeltaTable(String name, String path, Map options, CatalogTable entry) {
        super(name, path, options);
        this.entry = entry;
    }

    public CatalogTable v1Table() { return entry; }
}

// The hidden column `_metadata` of Spark's Parquet scan.
final class FileMetadata implements MetadataColumn {
    public String name() { return "_metadata"; }
    public boolean isNullable() { return false; }

    public DataType dataType() {
        Seq fields = new ParquetFileFormat().metadataSchemaFields();
        StructType type = new StructType();
        for (int i = 0; i < fields.size(); i++) {
            type = type.add((StructField) fields.apply(i));
        }
        return type;
    }
}

// The size of a table, which DESCRIBE EXTENDED asks a scan for. Queries never run this scan: the optimizer rule replaces it.
final class TableSize implements ScanBuilder, Scan, SupportsReportStatistics, Statistics {
    private final DeltaTable table;

    TableSize(DeltaTable table) { this.table = table; }

    public Scan build() { return this; }
    public StructType readSchema() { return table.schema(); }
    public Statistics estimateStatistics() { return this; }
    public OptionalLong sizeInBytes() { return number("sizeInBytes"); }
    public OptionalLong numRows() { return number("numRows"); }

    private OptionalLong number(String name) {
        Object value = table.description().get(name);
        return value == null ? OptionalLong.empty() : OptionalLong.of(((Number) value).longValue());
    }
}
