// Errors of Python as Java exceptions. PySpark and Spark Connect tell their kinds by class, condition and SQLSTATE.
package headwater;

import java.util.Collections;
import java.util.Map;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

public final class Failure {
    final String kind;
    final String message;
    final String condition;
    final String sqlState;
    final Map parameters;
    final long number;

    // `number` is under which Python keeps its error object.
    public Failure(String kind, String message, String condition, String sqlState, String parameters, long number) {
        this.kind = kind;
        this.message = message;
        this.condition = condition;
        this.sqlState = sqlState;
        this.parameters = Python.parse(parameters);
        this.number = number;
    }

    Throwable exception() {
        if (kind.equals("AnalysisException")) {
            return new DeltaAnalysisException(this);
        } else if (kind.equals("IllegalArgumentException")) {
            return new DeltaIllegalArgumentException(this);
        } else if (kind.equals("UnsupportedOperationException")) {
            return new DeltaUnsupportedOperationException(this);
        }
        return new DeltaRuntimeException(this);
    }

    // The number of the Python error behind a Java exception or one of its causes; -1 if there is none.
    public static long numberOf(Throwable error) {
        for (int depth = 0; error != null && depth < 50; depth++) {
            if (error instanceof HasFailure) {
                return ((HasFailure) error).failure().number;
            }
            error = error.getCause();
        }
        return -1;
    }
}

interface HasFailure {
    Failure failure();
}

final class DeltaAnalysisException extends AnalysisException implements HasFailure {
    private final Failure failure;

    DeltaAnalysisException(Failure failure) {
        super(failure.message, Option.empty(), Option.empty(), Option.empty(), Option.apply(failure.condition),
            scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(failure.parameters)), new QueryContext[0]);
        this.failure = failure;
    }

    public Failure failure() { return failure; }
    public String getCondition() { return failure.condition; }
    public String getSqlState() { return failure.sqlState; }
    public Map getMessageParameters() { return failure.parameters; }
}

final class DeltaIllegalArgumentException extends IllegalArgumentException implements SparkThrowable, HasFailure {
    private final Failure failure;

    DeltaIllegalArgumentException(Failure failure) {
        super(failure.message);
        this.failure = failure;
    }

    public Failure failure() { return failure; }
    public String getCondition() { return failure.condition; }
    public String getSqlState() { return failure.sqlState; }
    public Map getMessageParameters() { return failure.parameters; }
}

final class DeltaUnsupportedOperationException extends UnsupportedOperationException implements SparkThrowable, HasFailure {
    private final Failure failure;

    DeltaUnsupportedOperationException(Failure failure) {
        super(failure.message);
        this.failure = failure;
    }

    public Failure failure() { return failure; }
    public String getCondition() { return failure.condition; }
    public String getSqlState() { return failure.sqlState; }
    public Map getMessageParameters() { return failure.parameters; }
}

final class DeltaRuntimeException extends RuntimeException implements SparkThrowable, HasFailure {
    private final Failure failure;

    DeltaRuntimeException(Failure failure) {
        super(failure.message);
        this.failure = failure;
    }

    public Failure failure() { return failure; }
    public String getCondition() { return failure.condition; }
    public String getSqlState() { return failure.sqlState; }
    public Map getMessageParameters() { return failure.parameters; }
}
