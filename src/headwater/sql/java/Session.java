// Puts the parser, the rules and the table functions into sessions: running ones, and those that will be made from them.
package headwater;

import java.lang.reflect.Field;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.internal.SessionState;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;

public final class Session {
    private static final String[] FUNCTIONS = {"table_changes", "table_changes_by_path"};

    // A running session. Its parser and its list of rules are final fields: Spark has no other way in.
    public static void enable(org.apache.spark.sql.classic.SparkSession session) throws Exception {
        SessionState state = session.sessionState();
        if (DeltaParser.isOurs(state.sqlParser())) {
            return;
        }
        set(state, "sqlParser", DeltaParser.over(session, state.sqlParser()));
        set(state.analyzer(), "extendedResolutionRules",
            ((Seq) state.analyzer().extendedResolutionRules()).appended(new CommandRule(session)));
        for (int i = 0; i < FUNCTIONS.length; i++) {
            state.tableFunctionRegistry().createOrReplaceTempFunction(FUNCTIONS[i], new TableFunction(FUNCTIONS[i]), "built-in");
        }
    }

    public static boolean isEnabled(org.apache.spark.sql.classic.SparkSession session) {
        return DeltaParser.isOurs(session.sessionState().sqlParser());
    }

    // Sessions that are made from these extensions, as newSession() and the clones that streams run in.
    public static void extend(SparkSessionExtensions extensions) {
        extensions.injectResolutionRule(new MakeCommandRule());
        extensions.injectOptimizerRule(new MakeScanRule());
        extensions.injectParser(new MakeParser());
        for (int i = 0; i < FUNCTIONS.length; i++) {
            extensions.injectTableFunction(new Tuple3(new FunctionIdentifier(FUNCTIONS[i]),
                new ExpressionInfo("headwater.TableFunction", FUNCTIONS[i]), new TableFunction(FUNCTIONS[i])));
        }
    }

    private static void set(Object object, String name, Object value) throws Exception {
        Class type = object.getClass();
        while (true) {
            try {
                Field field = type.getDeclaredField(name);
                field.setAccessible(true);
                field.set(object, value);
                return;
            } catch (NoSuchFieldException above) {
                type = type.getSuperclass();
                if (type == null) {
                    throw above;
                }
            }
        }
    }
}

final class MakeCommandRule extends AbstractFunction1 {
    public Object apply(Object session) { return new CommandRule((SparkSession) session); }
}

final class MakeScanRule extends AbstractFunction1 {
    public Object apply(Object session) { return new ScanRule((SparkSession) session); }
}

final class MakeParser extends AbstractFunction2 {
    public Object apply(Object session, Object inner) { return DeltaParser.over((SparkSession) session, (ParserInterface) inner); }
}

// table_changes('t', 1, 2), table_changes_by_path('/t', 1, 2)
final class TableFunction extends AbstractFunction1 {
    private final String name;

    TableFunction(String name) { this.name = name; }

    public Object apply(Object arguments) { return Python.ask("function", new Object[] {SparkSession.active(), name, arguments}); }
}
