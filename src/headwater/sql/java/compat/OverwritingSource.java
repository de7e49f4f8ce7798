// Spark 4.1 and later: saveAsTable in overwrite mode tells the source that it is not a REPLACE TABLE.
package headwater;

import org.apache.spark.sql.connector.catalog.SupportsV1OverwriteWithSaveAsTable;

interface TableSource extends SupportsV1OverwriteWithSaveAsTable {}
