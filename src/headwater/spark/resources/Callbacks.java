// Calls from the JVM to Python that leave no connection behind.
//
// A JVM thread that calls Python gets a connection of its own, and a Python thread at the other end; py4j keeps both for
// as long as the JVM runs. Spark plans on a new thread for every exchange: each query would leave some of them behind.
// Janino compiles this text; it knows neither generics nor lambdas.
package headwater;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import py4j.ClientServerConnection;
import py4j.GatewayServer;
import py4j.PythonClient;

final class Callback implements InvocationHandler {
    private final GatewayServer server;
    private final InvocationHandler python;
    private final String name;
    private final String key;

    Callback(GatewayServer server, InvocationHandler python, String name, String key) {
        this.server = server;
        this.python = python;
        this.name = name;
        this.key = key;
    }

    public Object invoke(Object self, Method method, Object[] arguments) throws Throwable {
        if (method.getDeclaringClass() == Object.class) {
            String asked = method.getName();
            return asked.equals("equals") ? (Object) Boolean.valueOf(self == arguments[0] || isSame(arguments[0]))
                : asked.equals("hashCode") ? (Object) Integer.valueOf(key.hashCode()) : name;
        }
        Object found = server.getCallbackClient();
        PythonClient client = found instanceof PythonClient ? (PythonClient) found : null;
        boolean isNewLine = client != null && client.getPerThreadConnection() == null;
        try {
            return python.invoke(self, method, arguments);
        } finally {
            if (isNewLine) {
                hangUp(client);
            }
        }
    }

    private boolean isSame(Object other) {
        if (other == null || !Proxy.isProxyClass(other.getClass())) {
            return false;
        }
        InvocationHandler handler = Proxy.getInvocationHandler(other);
        return handler instanceof Callback && key.equals(((Callback) handler).key);
    }

    private static void hangUp(PythonClient client) {
        ClientServerConnection line = client.getPerThreadConnection();
        if (line != null) {
            client.setPerThreadConnection(null);
            client.connectionStopped(line);
            line.shutdown();
        }
    }
}

public final class Callbacks {
    public Object create(GatewayServer server, Object python, String name, String key) {
        Class type = python.getClass();
        Callback handler = new Callback(server, Proxy.getInvocationHandler(python), name, key);
        return Proxy.newProxyInstance(type.getClassLoader(), type.getInterfaces(), handler);
    }
}
