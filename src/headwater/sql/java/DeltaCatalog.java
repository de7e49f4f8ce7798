// The session catalog, in which Delta tables are ours, and delta.`/a/path` is the name of a table.
package headwater;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

public class DeltaCatalog extends SessionCatalogExtension {
    static boolean isDelta(Option provider) {
        return provider.isDefined() && "delta".equalsIgnoreCase((String) provider.get());
    }

    // The path in delta.`/a/path`; null if the identifier is the name of a table.
    public static String pathOf(Identifier ident) {
        String[] namespace = ident.namespace();
        boolean isPath = namespace.length == 1 && "delta".equalsIgnoreCase(namespace[0]) && isAbsolute(ident.name());
        return isPath ? ident.name() : null;
    }

    private static boolean isAbsolute(String text) {
        return new org.apache.hadoop.fs.Path(text.isEmpty() ? "." : text).isAbsolute() || text.indexOf("://") > 0;
    }

    public Set capabilities() { return new HashSet(Arrays.asList(TableCatalogCapability.values())); }

    // A table of ours if the identifier names one, else what the session catalog has found.
    private Table load(Identifier ident, Map options) throws NoSuchTableException {
        String path = pathOf(ident);
        if (path != null) {
            Map given = ident instanceof PathIdentifier ? ((PathIdentifier) ident).options : options;
            return new DeltaTable("delta." + DeltaTable.quoted(path), Catalogs.location(session(), path), given);
        }
        Table found = super.loadTable(ident);
        if (!(found instanceof V1Table)) {
            return found;
        }
        CatalogTable entry = ((V1Table) found).catalogTable();
        if (!isDelta(entry.provider()) || !entry.storage().locationUri().isDefined()) {
            return found;
        }
        return new NamedDeltaTable(entry.identifier().unquotedString(), entry.location().toString(), options, entry);
    }

    private static SparkSession session() { return (SparkSession) org.apache.spark.sql.SparkSession.active(); }

    public Table loadTable(Identifier ident) throws NoSuchTableException { return load(ident, Collections.emptyMap()); }

    public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
        Table table = load(ident, Collections.singletonMap("versionAsOf", version));
        return table instanceof DeltaTable ? table : super.loadTable(ident, version);
    }

    public Table loadTable(Identifier ident, long timestampMicros) throws NoSuchTableException {
        Table table = load(ident, Collections.singletonMap("timestampMicros", String.valueOf(timestampMicros)));
        return table instanceof DeltaTable ? table : super.loadTable(ident, timestampMicros);
    }

    public boolean tableExists(Identifier ident) {
        String path = pathOf(ident);
        return path == null ? super.tableExists(ident) : Boolean.TRUE.equals(Python.ask("exists", new Object[] {Catalogs.location(session(), path)}));
    }

    public Table alterTable(Identifier ident, TableChange[] changes) throws NoSuchTableException {
        Table table = load(ident, Collections.emptyMap());
        if (!(table instanceof DeltaTable)) {
            return super.alterTable(ident, changes);
        }
        Python.ask("alter", new Object[] {this, ident, table, changes});
        return loadTable(ident);
    }

    public void renameTable(Identifier from, Identifier to) throws NoSuchTableException, org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException {
        if (pathOf(from) != null) {
            Python.ask("renamePath", new Object[] {from.name()});
        }
        super.renameTable(from, to);
    }

    public boolean dropTable(Identifier ident) {
        if (pathOf(ident) != null) {
            Python.ask("dropPath", new Object[] {ident.name()});
        }
        return super.dropTable(ident);
    }

    public boolean purgeTable(Identifier ident) { return dropTable(ident); }
}
