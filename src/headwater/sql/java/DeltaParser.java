// Statements that only Delta has. Everything else goes to Spark's parser untouched.
package headwater;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.parser.ParserInterface;

public final class DeltaParser implements InvocationHandler {
    // A quick look, so that other statements cost nothing; Python decides.
    private static final Pattern MAYBE_OURS = Pattern.compile(
        "(?:\\s|--[^\\n]*\\n|/\\*.*?\\*/)*(?:OPTIMIZE|VACUUM|RESTORE|CONVERT|GENERATE|REORG|UNDROP|(?:DESC|DESCRIBE)\\s+(?:HISTORY|DETAIL)"
        + "|REFRESH\\s+SEARCH|DROP\\s+SEARCH|CREATE\\s+SEARCH|(?:CREATE|REPLACE)\\s.*\\sCLONE"
        + "|ALTER\\s+TABLE\\s.*(?:DROP\\s+FEATURE|CONSTRAINT|SYNC\\s+IDENTITY|CLUSTER\\s+BY))\\b.*",
        Pattern.CASE_INSENSITIVE | Pattern.DOTALL);

    private final SparkSession session;
    private final ParserInterface inner;

    DeltaParser(SparkSession session, ParserInterface inner) {
        this.session = session;
        this.inner = inner;
    }

    // A proxy, because the methods of the interface differ between versions of Spark.
    public static ParserInterface over(SparkSession session, ParserInterface inner) {
        Class[] kinds = new Class[] {ParserInterface.class};
        return (ParserInterface) Proxy.newProxyInstance(ParserInterface.class.getClassLoader(), kinds, new DeltaParser(session, inner));
    }

    static boolean isOurs(Object parser) {
        return Proxy.isProxyClass(parser.getClass()) && Proxy.getInvocationHandler(parser) instanceof DeltaParser;
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        if (method.getName().startsWith("parsePlan") && MAYBE_OURS.matcher((String) arguments[0]).matches()) {
            Object plan = Python.ask("parse", new Object[] {session, inner, arguments[0]});
            if (plan != null) {
                return plan;
            }
        }
        try {
            return method.invoke(inner, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }
}
