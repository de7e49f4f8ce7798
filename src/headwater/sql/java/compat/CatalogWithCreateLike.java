// Spark 4.3 and later: CREATE TABLE LIKE goes to the catalog.
package headwater;

import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableInfo;

public class SessionCatalogExtension extends DelegatingCatalogExtension {
    public Table createTableLike(Identifier ident, TableInfo info, Table source) {
        Python.ask("createLike", new Object[] {this, ident, Python.json(info.properties()), source});
        return null;
    }
}
