-- case: optimize
CREATE TABLE t (id INT, p INT) USING delta PARTITIONED BY (p);
INSERT INTO t VALUES (1, 1);
INSERT INTO t VALUES (2, 1);
INSERT INTO t VALUES (3, 2);
INSERT INTO t VALUES (4, 2);
@schema OPTIMIZE t WHERE p = 1
@history t
@schema OPTIMIZE t
SELECT * FROM t;
@schema OPTIMIZE t ZORDER BY (id)
@history t
OPTIMIZE t WHERE id = 1;
OPTIMIZE t ZORDER BY (p);
OPTIMIZE t ZORDER BY (nope);
OPTIMIZE missing;

-- case: optimize by path
CREATE TABLE delta.`$DIR/o` USING delta AS SELECT 1 AS id;
INSERT INTO delta.`$DIR/o` VALUES (2);
@schema OPTIMIZE delta.`$DIR/o`
@schema OPTIMIZE '$DIR/o' ZORDER BY id
@schema OPTIMIZE '$DIR/nothing'

-- case: vacuum
CREATE TABLE t (id INT) USING delta LOCATION '$DIR/v';
INSERT INTO t VALUES (1);
INSERT OVERWRITE t VALUES (2);
VACUUM t DRY RUN;
VACUUM t RETAIN 0 HOURS;
SET spark.databricks.delta.retentionDurationCheck.enabled = false;
VACUUM t RETAIN 0 HOURS;
SELECT * FROM t;
VACUUM '$DIR/v' RETAIN 0 HOURS DRY RUN;
VACUUM delta.`$DIR/v` LITE RETAIN 0 HOURS;
VACUUM t FULL RETAIN 200 HOURS;
RESET spark.databricks.delta.retentionDurationCheck.enabled;
VACUUM missing;
VACUUM '$DIR/nothing';

-- case: restore
CREATE TABLE t (id INT) USING delta;
INSERT INTO t VALUES (1);
INSERT INTO t VALUES (2);
@schema RESTORE TABLE t TO VERSION AS OF 1
SELECT * FROM t;
@schema RESTORE t VERSION AS OF 2
SELECT * FROM t;
RESTORE t TO VERSION AS OF 99;
RESTORE t TO TIMESTAMP AS OF '2001-01-01';
RESTORE missing TO VERSION AS OF 0;
@history t

-- case: shallow clone
CREATE TABLE src (id INT) USING delta TBLPROPERTIES ('k' = 'v');
INSERT INTO src VALUES (1), (2);
@schema CREATE TABLE t SHALLOW CLONE src
SELECT * FROM t;
INSERT INTO t VALUES (3);
SELECT count(*) FROM src;
CREATE TABLE t SHALLOW CLONE src;
@schema CREATE TABLE IF NOT EXISTS t SHALLOW CLONE src
@schema CREATE OR REPLACE TABLE t SHALLOW CLONE src VERSION AS OF 0 TBLPROPERTIES ('x' = 'y')
SELECT * FROM t;
SHOW TBLPROPERTIES t;
@schema CREATE TABLE u SHALLOW CLONE src LOCATION '$DIR/clone'
SELECT * FROM delta.`$DIR/clone`;
CREATE TABLE w SHALLOW CLONE missing;
@history t

-- case: convert
CREATE TABLE p USING parquet LOCATION '$DIR/parquet' AS SELECT id FROM range(3);
CONVERT TO DELTA parquet.`$DIR/parquet`;
SELECT * FROM delta.`$DIR/parquet`;
CREATE TABLE q USING parquet PARTITIONED BY (p) LOCATION '$DIR/parts' AS SELECT id, id % 2 AS p FROM range(4);
CONVERT TO DELTA q PARTITIONED BY (p BIGINT);
SELECT * FROM q;
CONVERT TO DELTA parquet.`$DIR/nothing`;
CONVERT TO DELTA delta.`$DIR/parquet`;

-- case: convert needs the partition columns
CREATE TABLE q USING parquet PARTITIONED BY (p) LOCATION '$DIR/parts' AS SELECT id, id % 2 AS p FROM range(4);
CONVERT TO DELTA parquet.`$DIR/parts`;
CONVERT TO DELTA parquet.`$DIR/parts` NO STATISTICS PARTITIONED BY (p BIGINT);
SELECT * FROM delta.`$DIR/parts`;

-- case: generate
CREATE TABLE t USING delta AS SELECT 1 AS id;
GENERATE symlink_format_manifest FOR TABLE t;
GENERATE nonsense FOR TABLE t;
GENERATE symlink_format_manifest FOR TABLE missing;

-- case: reorg
CREATE TABLE t USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT id FROM range(10);
DELETE FROM t WHERE id = 3;
@schema REORG TABLE t APPLY (PURGE)
@history t
SELECT count(*) FROM t;
