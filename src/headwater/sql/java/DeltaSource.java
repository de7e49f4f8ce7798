// format("delta") and USING delta.
package headwater;

import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class DeltaSource implements DataSourceRegister, TableSource, CreatableRelationProvider {
    public String shortName() { return "delta"; }

    // The table knows its schema; asking for it here would open the log for writes too.
    public StructType inferSchema(CaseInsensitiveStringMap options) { return new StructType(); }

    public Table getTable(StructType schema, Transform[] partitioning, Map options) {
        CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options);
        String path = given.containsKey("paths") ? (String) Python.ask("onePath", new Object[] {given.get("paths")}) : given.get("path");
        if (path == null) {
            Python.ask("noPath", new Object[0]);
        }
        SparkSession session = (SparkSession) org.apache.spark.sql.SparkSession.active();
        return new DeltaTable("delta." + DeltaTable.quoted(path), Catalogs.location(session, path), given.asCaseSensitiveMap());
    }

    // df.write.format("delta").save(path): Spark has no V2 plan for a save that may create the table.
    public BaseRelation createRelation(
            SQLContext context, SaveMode mode, scala.collection.immutable.Map options, Dataset data) {
        Python.ask("save", new Object[] {context.sparkSession(), mode.name(), Python.json(options), data});
        return new SavedRelation(context, data.schema());
    }
}

final class SavedRelation extends BaseRelation {
    private final SQLContext context;
    private final StructType schema;

    SavedRelation(SQLContext context, StructType schema) {
        this.context = context;
        this.schema = schema;
    }

    public SQLContext sqlContext() { return context; }
    public StructType schema() { return schema; }
}
