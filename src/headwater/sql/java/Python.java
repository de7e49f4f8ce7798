// The one way from Spark to Python: every question that a Java class here cannot answer itself goes through `ask`.
package headwater;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import org.apache.spark.unsafe.Platform;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

public final class Python {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static volatile BiFunction handler;

    // Python calls this when a session is enabled, and with null when its process ends.
    public static void connect(BiFunction function) { handler = function; }

    public static boolean isConnected() { return handler != null; }

    public static Object ask(String what, Object[] about) {
        BiFunction python = handler;
        if (python == null) {
            throw new IllegalStateException(
                "Delta tables are served by a Python process that is not connected: call headwater.enable(spark).");
        }
        return call(python, what, about);
    }

    // Python returns its errors as values, so that no trace of the connection gets into the messages.
    public static Object call(BiFunction function, String what, Object[] about) {
        Object answer = function.apply(what, about);
        if (answer instanceof Failure) {
            Platform.throwException(((Failure) answer).exception());
        } else if (answer instanceof Throwable) {
            Platform.throwException((Throwable) answer);
        }
        return answer;
    }

    // Maps travel as JSON: Python would read a Java map entry by entry, with a call for each.
    public static String json(Object value) {
        try {
            return MAPPER.writeValueAsString(plain(value));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    public static Map parse(String json) {
        try {
            return (Map) MAPPER.readValue(json, Map.class);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Object plain(Object value) {
        if (value instanceof scala.collection.Map) {
            return new HashMap(CollectionConverters.asJava((scala.collection.Map) value));
        }
        return value instanceof scala.collection.Seq ? CollectionConverters.asJava((scala.collection.Seq) value) : value;
    }

    static Seq seq(List items) { return CollectionConverters.asScala(items).toSeq(); }
}
