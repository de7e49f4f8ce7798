-- case: time travel
CREATE TABLE t (id INT) USING delta;
INSERT INTO t VALUES (1);
INSERT INTO t VALUES (2);
SELECT * FROM t VERSION AS OF 1;
SELECT * FROM t FOR SYSTEM_VERSION AS OF 0;
SELECT * FROM t@v1;
SELECT * FROM t VERSION AS OF 7;
SELECT * FROM t TIMESTAMP AS OF '2001-01-01';
SELECT * FROM t TIMESTAMP AS OF current_timestamp() + INTERVAL 1 DAY;
SELECT * FROM t TIMESTAMP AS OF 'no time';
SELECT count(*) FROM t a JOIN t VERSION AS OF 1 b ON a.id = b.id;

-- case: by path
CREATE TABLE delta.`$DIR/p` USING delta AS SELECT 1 AS id;
SELECT * FROM delta.`$DIR/p`;
INSERT INTO delta.`$DIR/p` VALUES (2);
SELECT * FROM delta.`$DIR/p` VERSION AS OF 0;
SELECT * FROM delta.`$DIR/p@v0`;
UPDATE delta.`$DIR/p` SET id = 3 WHERE id = 2;
DELETE FROM delta.`$DIR/p` WHERE id = 1;
SELECT * FROM delta.`$DIR/p`;
SELECT * FROM delta.`$DIR/nothing`;
INSERT INTO delta.`$DIR/nothing` VALUES (1);
DROP TABLE delta.`$DIR/p`;
DESCRIBE TABLE delta.`$DIR/p`;
ALTER TABLE delta.`$DIR/p` ADD COLUMN x INT;
SELECT * FROM delta.`$DIR/p`;

-- case: changes
CREATE TABLE t (id INT, name STRING) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');
INSERT INTO t VALUES (1, 'a'), (2, 'b');
UPDATE t SET name = 'x' WHERE id = 1;
DELETE FROM t WHERE id = 2;
SELECT id, name, _change_type, _commit_version FROM table_changes('t', 1);
SELECT id, name, _change_type FROM table_changes('t', 2, 3) WHERE _change_type <> 'delete';
SELECT count(*) FROM table_changes('t', 0, 1);
SELECT * FROM table_changes('t', 9);
SELECT * FROM table_changes('t', 3, 1);
SELECT * FROM table_changes('missing', 0);

-- case: changes were not recorded
CREATE TABLE t (id INT) USING delta;
INSERT INTO t VALUES (1);
SELECT * FROM table_changes('t', 0);

-- case: metadata columns, counts
CREATE TABLE t USING delta AS SELECT id, id % 2 AS p FROM range(10);
SELECT count(*), min(id), max(id) FROM t;
SELECT count(*) FROM t WHERE p = 1;
SELECT count(DISTINCT _metadata.file_path) > 0, min(_metadata.row_index) FROM t;
SELECT * FROM t LIMIT 0;
SELECT p, count(*) FROM t GROUP BY p HAVING count(*) > 1 ORDER BY p;

-- case: joins with others
CREATE TABLE t USING delta AS SELECT id FROM range(5);
CREATE TABLE p USING parquet AS SELECT id + 3 AS id FROM range(5);
SELECT t.id FROM t JOIN p USING (id);
SELECT id FROM t WHERE id IN (SELECT id FROM p);
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM p WHERE p.id = t.id + 1);
INSERT INTO p SELECT id FROM t;
SELECT count(*) FROM p;

-- case: names
CREATE DATABASE other;
CREATE TABLE other.t (id INT) USING delta;
INSERT INTO spark_catalog.other.t VALUES (1);
USE other;
SELECT * FROM T;
SELECT ID FROM t;
SHOW TABLES;
USE default;
SELECT * FROM other.t;
DROP TABLE other.t;
DROP DATABASE other;

-- case: describe
CREATE TABLE t (id INT COMMENT 'key', p STRING) USING delta PARTITIONED BY (p);
INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL);
DESCRIBE TABLE t;
DESCRIBE t id;
SHOW COLUMNS IN t;
SHOW PARTITIONS t;
SHOW PARTITIONS t PARTITION (p = 'a');
DESCRIBE HISTORY t LIMIT 1;
@detail t
DESCRIBE DETAIL missing;
DESCRIBE HISTORY missing;
ANALYZE TABLE t COMPUTE STATISTICS;
CACHE TABLE t;
SELECT count(*) FROM t;
INSERT INTO t VALUES (4, 'd');
SELECT count(*) FROM t;
UNCACHE TABLE t;
REFRESH TABLE t;
