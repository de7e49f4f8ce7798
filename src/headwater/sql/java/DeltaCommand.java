// A statement on a Delta table as a command of Spark, which runs in Python.
package headwater;

import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.connector.ExternalCommandRunner;
import org.apache.spark.sql.execution.command.ExternalCommandExecutor;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;

public final class DeltaCommand extends ExternalCommandExecutor {
    public DeltaCommand(ExternalCommandRunner runner, String command, scala.collection.immutable.Map options) {
        super(runner, command, options);
    }

    // `schema` is the JSON of the result's type, `text` what plans show.
    public static DeltaCommand of(String what, Object[] about, String schema, String text) {
        return new DeltaCommand(new Statement(what, about, schema, text), what, Plans.emptyMap());
    }

    public Seq output() { return ((Statement) runner()).output; }
    public Seq run(SparkSession session) { return ((Statement) runner()).run(session); }
    public String nodeName() { return "Delta"; }
    public String simpleString(int maxFields) { return "Delta " + runner(); }
}

// What a command does. Copies of the command share it, so the attributes of its result stay the same.
final class Statement implements ExternalCommandRunner {
    final Seq output;
    private final String what;
    private final Object[] about;
    private final String text;

    Statement(String what, Object[] about, String schema, String text) {
        this.what = what;
        this.about = about;
        this.output = DataTypeUtils.toAttributes((StructType) DataType.fromJson(schema));
        this.text = text;
    }

    Seq run(SparkSession session) {
        Object[] given = new Object[about.length + 1];
        given[0] = session;
        System.arraycopy(about, 0, given, 1, about.length);
        Dataset result = (Dataset) Python.ask(what, given);
        List rows = result == null ? Collections.emptyList() : result.collectAsList();
        return Python.seq(rows);
    }

    public String[] executeCommand(String command, CaseInsensitiveStringMap options) { throw new UnsupportedOperationException(command); }

    public String toString() { return text; }
}
