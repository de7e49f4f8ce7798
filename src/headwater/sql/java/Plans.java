// Small things on Spark's plans and expressions that would be many calls from Python.
package headwater;

import java.lang.reflect.Method;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.ColumnDefinition;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTable;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

public final class Plans {
    private static final Seq NONE = (Seq) Nil$.MODULE$;

    public static scala.collection.immutable.Map emptyMap() {
        return (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty();
    }

    // A location as users write it: without the percent signs of a URI.
    public static String text(URI uri) { return new Path(uri).toString(); }

    static StructType schemaOf(Seq output) {
        StructType schema = new StructType();
        for (int i = 0; i < output.size(); i++) {
            Attribute column = (Attribute) output.apply(i);
            schema = schema.add(column.name(), column.dataType(), column.nullable(), column.metadata());
        }
        return schema;
    }

    // --- relations ------------------------------------------------------------------------------------

    // The relation as if it had been loaded by the name delta.`/path`.
    static LogicalPlan named(SparkSession session, DataSourceV2Relation relation) {
        CatalogPlugin catalog = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().catalogManager().v2SessionCatalog();
        if (!(catalog instanceof DeltaCatalog)) {
            return null;
        }
        DeltaTable table = (DeltaTable) relation.table();
        Map changes = new HashMap();
        changes.put("catalog", Option.apply(catalog));
        changes.put("identifier", Option.apply(new PathIdentifier(table.path, table.options)));
        return (LogicalPlan) copy(relation, changes);
    }

    static boolean hasMetadata(Seq output) {
        for (int i = 0; i < output.size(); i++) {
            if (((Attribute) output.apply(i)).metadata().contains("__metadata_col")) {
                return true;
            }
        }
        return false;
    }

    // Whether a projection gives every column of its child under its own name.
    static boolean showsAll(Project project) {
        Seq columns = project.projectList();
        if (columns.size() != project.child().output().size()) {
            return false;
        }
        for (int i = 0; i < columns.size(); i++) {
            Object column = columns.apply(i);
            if (column instanceof Alias && ((Alias) column).name().equals(nameOf(((Alias) column).child()))) {
                column = ((Alias) column).child();
            }
            if (!(column instanceof AttributeReference)) {
                return false;
            }
        }
        return true;
    }

    private static String nameOf(Object column) { return column instanceof NamedExpression ? ((NamedExpression) column).name() : null; }

    // The alias by which a statement calls its target; null if it has none.
    static String aliasOf(LogicalPlan plan) { return plan instanceof SubqueryAlias ? ((SubqueryAlias) plan).alias() : null; }

    static Transform clusterBy(List columns) {
        NamedReference[] references = new NamedReference[columns.size()];
        for (int i = 0; i < references.length; i++) {
            references[i] = Expressions.column((String) columns.get(i));
        }
        return new org.apache.spark.sql.connector.expressions.ClusterByTransform(Python.seq(java.util.Arrays.asList(references)));
    }

    // A copy of a case class with some fields changed, whatever other fields this version of Spark gives it.
    static Object copy(Object product, Map changes) {
        scala.Product fields = (scala.Product) product;
        Object[] arguments = new Object[fields.productArity()];
        for (int i = 0; i < arguments.length; i++) {
            String name = fields.productElementName(i);
            arguments[i] = changes.containsKey(name) ? changes.get(name) : fields.productElement(i);
        }
        Method[] methods = product.getClass().getMethods();
        try {
            for (int i = 0; i < methods.length; i++) {
                if (methods[i].getName().equals("copy") && methods[i].getParameterTypes().length == arguments.length) {
                    return methods[i].invoke(product, arguments);
                }
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        throw new IllegalStateException(product.getClass() + " cannot be copied");
    }

    // What CREATE TABLE and its kin ask for, as JSON.
    public static String creation(LogicalPlan plan) {
        Map wanted = new HashMap();
        TableSpec spec;
        Seq partitioning;
        if (plan instanceof CreateTable) {
            CreateTable create = (CreateTable) plan;
            spec = (TableSpec) create.tableSpec();
            partitioning = create.partitioning();
            wanted.put("schema", columns(create.columns()).json());
            wanted.put("ifNotExists", Boolean.valueOf(create.ignoreIfExists()));
        } else if (plan instanceof ReplaceTable) {
            ReplaceTable replace = (ReplaceTable) plan;
            spec = (TableSpec) replace.tableSpec();
            partitioning = replace.partitioning();
            wanted.put("schema", columns(replace.columns()).json());
            wanted.put("orCreate", Boolean.valueOf(replace.orCreate()));
        } else if (plan instanceof CreateTableAsSelect) {
            CreateTableAsSelect create = (CreateTableAsSelect) plan;
            spec = (TableSpec) create.tableSpec();
            partitioning = create.partitioning();
            wanted.put("writeOptions", Python.json(create.writeOptions()));
            wanted.put("ifNotExists", Boolean.valueOf(create.ignoreIfExists()));
        } else {
            ReplaceTableAsSelect replace = (ReplaceTableAsSelect) plan;
            spec = (TableSpec) replace.tableSpec();
            partitioning = replace.partitioning();
            wanted.put("writeOptions", Python.json(replace.writeOptions()));
            wanted.put("orCreate", Boolean.valueOf(replace.orCreate()));
        }
        wanted.put("replace", Boolean.valueOf(plan instanceof ReplaceTable || plan instanceof ReplaceTableAsSelect));
        wanted.put("properties", Python.json(spec.properties()));
        wanted.put("options", Python.json(spec.options()));
        wanted.put("location", spec.location().isDefined() ? spec.location().get() : null);
        wanted.put("comment", spec.comment().isDefined() ? spec.comment().get() : null);
        wanted.put("serde", Boolean.valueOf(spec.serde().isDefined()));
        wanted.put("partitioning", transforms(partitioning));
        wanted.put("constraints", constraints(spec));
        return Python.json(wanted);
    }

    private static StructType columns(Seq definitions) {
        StructType schema = new StructType();
        for (int i = 0; i < definitions.size(); i++) {
            schema = schema.add(((ColumnDefinition) definitions.apply(i)).toV1Column());
        }
        return schema;
    }

    private static List transforms(Seq partitioning) {
        List found = new ArrayList();
        for (int i = 0; i < partitioning.size(); i++) {
            Transform transform = (Transform) partitioning.apply(i);
            NamedReference[] references = transform.references();
            List columns = new ArrayList();
            for (int j = 0; j < references.length; j++) {
                columns.add(java.util.Arrays.asList(references[j].fieldNames()));
            }
            Map one = new HashMap();
            one.put("name", transform.name());
            one.put("columns", columns);
            one.put("text", transform.describe());
            found.add(one);
        }
        return found;
    }

    // From Spark 4.1 on a table may be created with constraints.
    private static List constraints(TableSpec spec) {
        List found = new ArrayList();
        Object all;
        try {
            all = TableSpec.class.getMethod("constraints", new Class[0]).invoke(spec, new Object[0]);
        } catch (Exception absent) {
            return found;
        }
        for (int i = 0; i < ((Seq) all).size(); i++) {
            Object constraint = ((Seq) all).apply(i);
            Map one = new HashMap();
            one.put("kind", constraint.getClass().getSimpleName());
            one.put("name", call(constraint, "name"));
            one.put("expression", constraint.getClass().getSimpleName().equals("Check") ? call(constraint, "predicateSql") : null);
            found.add(one);
        }
        return found;
    }

    // The value of a method without arguments that some versions of Spark do not have.
    public static Object call(Object object, String method) {
        try {
            return object.getClass().getMethod(method, new Class[0]).invoke(object, new Object[0]);
        } catch (Exception absent) {
            return null;
        }
    }

    // --- scans ----------------------------------------------------------------------------------------

    // The columns of a scan under the ids by which the query knows them.
    static LogicalPlan withIds(LogicalPlan scan, Seq output) {
        Map byName = new HashMap();
        for (int i = 0; i < scan.output().size(); i++) {
            Attribute column = (Attribute) scan.output().apply(i);
            byName.put(column.name(), column);
        }
        List columns = new ArrayList();
        for (int i = 0; i < output.size(); i++) {
            AttributeReference wanted = (AttributeReference) output.apply(i);
            Expression column = (Expression) byName.get(wanted.name());
            if (column == null) {
                Python.ask("columnGone", new Object[] {wanted.name(), scan.toString()});
            }
            columns.add(new Alias(column, wanted.name(), wanted.exprId(), wanted.qualifier(), Option.apply(wanted.metadata()), NONE));
        }
        return new Project(Python.seq(columns), scan);
    }

    // The same plan with columns of its own, so that one query can have it twice.
    static LogicalPlan renewed(LogicalPlan plan) {
        return (LogicalPlan) plan.transformUpWithNewOutput(new Renew(), new Constant(Boolean.FALSE), new Constant(Boolean.TRUE));
    }

    // --- expressions ----------------------------------------------------------------------------------

    // The names that lead to a column, or to a field in it.
    public static String[] fieldPath(Expression key) {
        if (key instanceof UnresolvedAttribute) {
            Seq parts = ((UnresolvedAttribute) key).nameParts();
            String[] names = new String[parts.size()];
            for (int i = 0; i < names.length; i++) {
                names[i] = (String) parts.apply(i);
            }
            return names;
        }
        List names = new ArrayList();
        while (key instanceof GetStructField) {
            names.add(0, ((GetStructField) key).extractFieldName());
            key = ((GetStructField) key).child();
        }
        if (key instanceof Alias) {
            return fieldPath(((Alias) key).child());
        }
        names.add(0, ((NamedExpression) key).name());
        return (String[]) names.toArray(new String[0]);
    }

    // A column of PySpark for an expression of a plan, in which columns are called by their names again.
    public static Expression byName(Expression expression) { return (Expression) expression.transform(new ByName()); }

    public static Column column(Expression expression) {
        return ExpressionUtils.column(byName(expression));
    }

    public static Dataset frame(SparkSession session, LogicalPlan plan) {
        return org.apache.spark.sql.classic.Dataset.ofRows((org.apache.spark.sql.classic.SparkSession) session, plan);
    }
}

// The identifier of a table that was loaded by its path. Spark hands it back when it loads the table again, with the options.
final class PathIdentifier implements Identifier {
    final String path;
    final Map options;

    PathIdentifier(String path, Map options) {
        this.path = path;
        this.options = options;
    }

    public String[] namespace() { return new String[] {"delta"}; }
    public String name() { return path; }
    public String toString() { return "delta." + DeltaTable.quoted(path); }
    public int hashCode() { return path.hashCode(); }

    public boolean equals(Object other) {
        return other instanceof Identifier && path.equals(((Identifier) other).name())
            && java.util.Arrays.equals(namespace(), ((Identifier) other).namespace());
    }
}

final class Constant extends AbstractFunction1 {
    private final Object value;

    Constant(Object value) { this.value = value; }

    public Object apply(Object any) { return value; }
}

final class Renew extends AbstractPartialFunction {
    public boolean isDefinedAt(Object plan) { return plan instanceof LogicalRelation || plan instanceof Project; }

    public Object applyOrElse(Object plan, Function1 otherwise) {
        if (plan instanceof Project) {
            return project((Project) plan);
        }
        return plan instanceof LogicalRelation ? relation((LogicalRelation) plan) : otherwise.apply(plan);
    }

    private static Tuple2 project(Project project) {
        List columns = new ArrayList();
        List pairs = new ArrayList();
        for (int i = 0; i < project.projectList().size(); i++) {
            Object column = project.projectList().apply(i);
            if (column instanceof Alias) {
                NamedExpression renewed = ((Alias) column).newInstance();
                pairs.add(new Tuple2(((Alias) column).toAttribute(), renewed.toAttribute()));
                column = renewed;
            }
            columns.add(column);
        }
        return new Tuple2(new Project(Python.seq(columns), project.child()), Python.seq(pairs));
    }

    private static Tuple2 relation(LogicalRelation relation) {
        LogicalRelation renewed = (LogicalRelation) relation.newInstance();
        List pairs = new ArrayList();
        for (int i = 0; i < renewed.output().size(); i++) {
            pairs.add(new Tuple2(relation.output().apply(i), renewed.output().apply(i)));
        }
        return new Tuple2(renewed, Python.seq(pairs));
    }
}

final class ByName extends AbstractPartialFunction {
    public boolean isDefinedAt(Object each) { return each instanceof AttributeReference; }

    public Object applyOrElse(Object each, Function1 otherwise) {
        if (!(each instanceof AttributeReference)) {
            return otherwise.apply(each);
        }
        String name = ((AttributeReference) each).name();
        return new UnresolvedAttribute(Python.seq(Collections.singletonList(name)));
    }
}
