// Replaces statements on Delta tables by our commands, while Spark analyses a query.
package headwater;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTable;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

public final class CommandRule extends Rule {
    private final SparkSession session;

    public CommandRule(SparkSession session) { this.session = session; }

    public TreeNode apply(TreeNode plan) { return ((LogicalPlan) plan).resolveOperatorsDown(new Replacement(session)); }
}

final class Replacement extends AbstractPartialFunction {
    private static final String NOTHING = "{\"type\": \"struct\", \"fields\": []}";
    private static final String AFFECTED = longs(new String[] {"num_affected_rows"});
    private static final String MERGED =
        longs(new String[] {"num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows"});

    private final SparkSession session;

    Replacement(SparkSession session) { this.session = session; }

    private static String longs(String[] names) {
        StringBuilder fields = new StringBuilder();
        for (int i = 0; i < names.length; i++) {
            fields.append(i == 0 ? "" : ", ").append("{\"name\": \"").append(names[i])
                .append("\", \"type\": \"long\", \"nullable\": true, \"metadata\": {}}");
        }
        return "{\"type\": \"struct\", \"fields\": [" + fields + "]}";
    }

    public boolean isDefinedAt(Object plan) { return replacement((LogicalPlan) plan) != null; }

    public Object applyOrElse(Object plan, Function1 otherwise) {
        LogicalPlan found = replacement((LogicalPlan) plan);
        return found == null ? otherwise.apply(plan) : found;
    }

    private LogicalPlan replacement(LogicalPlan plan) {
        if (plan instanceof DataSourceV2Relation) {
            return named((DataSourceV2Relation) plan);
        } else if (plan instanceof DeleteFromTable) {
            return onTable("delete", plan, ((DeleteFromTable) plan).table(), AFFECTED, "DELETE FROM ");
        } else if (plan instanceof UpdateTable) {
            return onTable("update", plan, ((UpdateTable) plan).table(), AFFECTED, "UPDATE ");
        } else if (plan instanceof MergeIntoTable) {
            MergeIntoTable merge = (MergeIntoTable) plan;
            return merge.sourceTable().resolved() ? onTable("merge", plan, merge.targetTable(), MERGED, "MERGE INTO ") : null;
        } else if (plan instanceof V2WriteCommand) {
            V2WriteCommand write = (V2WriteCommand) plan;
            boolean isReady = write.query().resolved();
            return isReady ? onTable("write", plan, (LogicalPlan) write.table(), NOTHING, plan.nodeName() + " ") : null;
        } else if (plan instanceof CreateTable) {
            return create(plan, ((CreateTable) plan).tableSpec(), ((CreateTable) plan).name(), plan.resolved());
        } else if (plan instanceof ReplaceTable) {
            return create(plan, ((ReplaceTable) plan).tableSpec(), ((ReplaceTable) plan).name(), plan.resolved());
        } else if (plan instanceof CreateTableAsSelect) {
            CreateTableAsSelect made = (CreateTableAsSelect) plan;
            return create(plan, made.tableSpec(), made.name(), made.query().resolved());
        } else if (plan instanceof ReplaceTableAsSelect) {
            ReplaceTableAsSelect made = (ReplaceTableAsSelect) plan;
            return create(plan, made.tableSpec(), made.name(), made.query().resolved());
        }
        return other(plan, plan.getClass().getSimpleName());
    }

    // Statements whose classes differ between versions of Spark, or are few words.
    private LogicalPlan other(LogicalPlan plan, String kind) {
        if (kind.equals("AddCheckConstraint")) {
            LogicalPlan below = (LogicalPlan) plan.children().apply(0);
            LogicalPlan target = below instanceof Filter ? ((Filter) below).child() : below;
            return onTable("addConstraint", plan, target, NOTHING, "ADD CONSTRAINT ");
        } else if (kind.equals("ShowPartitions") || kind.equals("ShowCreateTable") || kind.equals("AnalyzeTable")
                || kind.equals("AnalyzeColumn") || kind.equals("RepairTable") || kind.equals("AddPartitions")
                || kind.equals("DropPartitions") || kind.equals("RenamePartitions") || kind.equals("TruncatePartition")
                || kind.equals("LoadData") || kind.equals("SetTableSerDeProperties") || kind.equals("SetTableLocation")) {
            return onResolved(kind, plan);
        }
        return null;
    }

    private LogicalPlan onResolved(String kind, LogicalPlan plan) {
        LogicalPlan child = (LogicalPlan) plan.children().apply(0);
        if (!(child instanceof ResolvedTable) || !(((ResolvedTable) child).table() instanceof DeltaTable)) {
            return null;
        }
        DeltaTable table = (DeltaTable) ((ResolvedTable) child).table();
        String schema = Plans.schemaOf(plan.output()).json();
        return DeltaCommand.of("on" + kind, new Object[] {plan, table, ((ResolvedTable) child).identifier()}, schema, kind + " " + table.name);
    }

    private LogicalPlan onTable(String what, LogicalPlan plan, LogicalPlan target, String schema, String text) {
        DataSourceV2Relation relation = relation(target);
        if (relation == null) {
            return null;
        }
        DeltaTable table = (DeltaTable) relation.table();
        return DeltaCommand.of(what, new Object[] {plan, table, Plans.aliasOf(target), relation}, schema, text + table.name);
    }

    // The Delta table that a plan stands for: by name, by path, or through a temporary view that shows it as it is.
    static DataSourceV2Relation relation(LogicalPlan plan) {
        while (true) {
            if (plan instanceof SubqueryAlias) {
                plan = ((SubqueryAlias) plan).child();
            } else if (plan instanceof View && ((View) plan).isTempView()) {
                plan = ((View) plan).child();
            } else if (plan instanceof Project && Plans.showsAll((Project) plan)) {
                plan = ((Project) plan).child();
            } else {
                break;
            }
        }
        boolean isOurs = plan instanceof DataSourceV2Relation && ((DataSourceV2Relation) plan).table() instanceof DeltaTable;
        return isOurs ? (DataSourceV2Relation) plan : null;
    }

    // A table that was loaded by its path gets a name too: Spark then sees to it that every query reads the newest version.
    private LogicalPlan named(DataSourceV2Relation relation) {
        boolean isNameless = relation.table() instanceof DeltaTable && relation.catalog().isEmpty();
        return isNameless && !((DeltaTable) relation.table()).isPinned() ? Plans.named(session, relation) : null;
    }

    private LogicalPlan create(LogicalPlan plan, Object given, Object name, boolean isReady) {
        if (!isReady || !(given instanceof TableSpec) || !(name instanceof ResolvedIdentifier)) {
            return null;
        }
        TableSpec spec = (TableSpec) given;
        ResolvedIdentifier target = (ResolvedIdentifier) name;
        if (!(target.catalog() instanceof DeltaCatalog)) {
            return null;
        }
        boolean isDelta = spec.provider().isDefined() ? DeltaCatalog.isDelta(spec.provider()) : isDefault(target);
        return isDelta ? DeltaCommand.of("create", new Object[] {plan}, NOTHING, plan.nodeName() + " " + target.identifier()) : null;
    }

    private boolean isDefault(ResolvedIdentifier target) {
        return DeltaCatalog.pathOf(target.identifier()) != null || "delta".equalsIgnoreCase(session.conf().get("spark.sql.sources.default"));
    }
}
