// Puts our scans where queries read Delta tables.
//
// The optimizer does it, not the analyzer: so a DataFrame reads the version that is the newest when it runs.
package headwater;

import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.Tuple3;
import scala.runtime.AbstractPartialFunction;

public final class ScanRule extends Rule {
    private final SparkSession session;

    public ScanRule(SparkSession session) { this.session = session; }

    public TreeNode apply(TreeNode plan) { return ((LogicalPlan) plan).transformDown(new Scans(session)); }

    // Python calls this when a session stops: kept plans hold on to it.
    public static void forget() { Scans.KEPT.clear(); }
}

final class Scans extends AbstractPartialFunction {
    static final ConcurrentHashMap KEPT = new ConcurrentHashMap();
    private static final int MAX_KEPT = 64;

    private final SparkSession session;

    Scans(SparkSession session) { this.session = session; }

    public boolean isDefinedAt(Object plan) {
        return plan instanceof DataSourceV2Relation && ((DataSourceV2Relation) plan).table() instanceof DeltaTable;
    }

    public Object applyOrElse(Object plan, Function1 otherwise) {
        if (!isDefinedAt(plan)) {
            return otherwise.apply(plan);
        }
        DataSourceV2Relation relation = (DataSourceV2Relation) plan;
        String token = ((DeltaTable) relation.table()).token();
        Boolean withMetadata = Boolean.valueOf(Plans.hasMetadata(relation.output()));
        Tuple3 key = new Tuple3(session, token, withMetadata);
        LogicalPlan scan = (LogicalPlan) KEPT.get(key);
        if (scan == null) {
            scan = (LogicalPlan) Python.ask("scan", new Object[] {session, token, withMetadata});
            if (KEPT.size() >= MAX_KEPT) {
                KEPT.clear();
            }
            KEPT.put(key, scan);
        }
        return Plans.withIds(Plans.renewed(scan), relation.output());
    }
}
