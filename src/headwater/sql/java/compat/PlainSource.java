// Spark 4.0.
package headwater;

import org.apache.spark.sql.connector.catalog.TableProvider;

interface TableSource extends TableProvider {}
