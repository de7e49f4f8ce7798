// Spark 4.0 to 4.2: CREATE TABLE LIKE is a command of the old catalog, which the analysis rule replaces.
package headwater;

import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;

public class SessionCatalogExtension extends DelegatingCatalogExtension {}
