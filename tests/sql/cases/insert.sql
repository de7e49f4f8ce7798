-- case: by position, by name, with lists of columns
CREATE TABLE t (id INT, name STRING, n DOUBLE) USING delta;
INSERT INTO t VALUES (1, 'a', 1.5);
INSERT INTO t (n, id) VALUES (2.5, 2);
INSERT INTO t BY NAME SELECT 'c' AS name, 3 AS id, 3.5D AS n;
INSERT INTO t BY NAME SELECT 4 AS id;
INSERT INTO t SELECT id + 10, name, n FROM t;
SELECT * FROM t;
@history t

-- case: too many and too few columns
CREATE TABLE t (id INT, name STRING) USING delta;
INSERT INTO t VALUES (1, 'a', 2);
INSERT INTO t VALUES (1);
INSERT INTO t (id, nope) VALUES (1, 2);
INSERT INTO t BY NAME SELECT 1 AS id, 2 AS nope;
SELECT * FROM t;

-- case: casts on the way in
CREATE TABLE t (id INT, at DATE) USING delta;
INSERT INTO t VALUES (2L, DATE '2024-01-01');
INSERT INTO t VALUES (3000000000L, DATE '2024-01-01');
INSERT INTO t VALUES ('7', DATE '2024-01-01');
INSERT INTO t VALUES ('x', DATE '2024-01-01');
INSERT INTO t VALUES (1, TIMESTAMP '2024-01-01 10:00:00');
SELECT * FROM t;

-- case: overwrite
CREATE TABLE t (id INT, p INT) USING delta PARTITIONED BY (p);
INSERT INTO t VALUES (1, 1), (2, 2), (3, 3);
INSERT OVERWRITE t VALUES (4, 1);
SELECT * FROM t;
INSERT INTO t VALUES (5, 2);
INSERT OVERWRITE t PARTITION (p = 2) VALUES (6);
SELECT * FROM t;
INSERT INTO t PARTITION (p = 7) VALUES (7);
INSERT OVERWRITE t PARTITION (p) VALUES (8, 7);
SELECT * FROM t;
@history t

-- case: dynamic partition overwrite
CREATE TABLE t (id INT, p INT) USING delta PARTITIONED BY (p);
INSERT INTO t VALUES (1, 1), (2, 2), (3, 3);
SET spark.sql.sources.partitionOverwriteMode = dynamic;
INSERT OVERWRITE t VALUES (20, 2);
SELECT * FROM t;
INSERT OVERWRITE t PARTITION (p) SELECT 30, 3;
SELECT * FROM t;
RESET spark.sql.sources.partitionOverwriteMode;
@history t

-- case: replace where
CREATE TABLE t (id INT, p INT) USING delta PARTITIONED BY (p);
INSERT INTO t VALUES (1, 1), (2, 2), (3, 2);
INSERT INTO t REPLACE WHERE p = 2 VALUES (9, 2);
SELECT * FROM t;
INSERT INTO t REPLACE WHERE id = 1 VALUES (1, 5);
SELECT * FROM t;
INSERT INTO t REPLACE WHERE p = 2 VALUES (9, 3);
@history t

-- case: automatic schema evolution
CREATE TABLE t (id INT) USING delta;
SET spark.databricks.delta.schema.autoMerge.enabled = true;
INSERT INTO t BY NAME SELECT 1 AS id, 'x' AS more;
SELECT * FROM t;
RESET spark.databricks.delta.schema.autoMerge.enabled;

-- case: nested columns and maps
CREATE TABLE t (id INT, s STRUCT<a: INT, b: STRUCT<c: STRING>>, m MAP<STRING, ARRAY<INT>>) USING delta;
INSERT INTO t SELECT 1, named_struct('a', 2, 'b', named_struct('c', 'x')), map('k', array(1, 2));
SELECT * FROM t;
SELECT s.b.c, m['k'][1] FROM t;

-- case: common table expressions and subqueries
CREATE TABLE t (id INT) USING delta;
WITH q AS (SELECT 5 AS id) INSERT INTO t SELECT * FROM q;
INSERT INTO t WITH q AS (SELECT 6 AS id) SELECT * FROM q;
SELECT * FROM t WHERE id = (SELECT max(id) FROM t);

-- case: rows that break the rules
CREATE TABLE t (id INT NOT NULL, n INT) USING delta;
ALTER TABLE t ADD CONSTRAINT small CHECK (n < 10);
INSERT INTO t VALUES (1, 5);
INSERT INTO t VALUES (NULL, 5);
INSERT INTO t VALUES (1, 50);
INSERT INTO t VALUES (1, NULL);
SELECT * FROM t;

-- case: truncate
CREATE TABLE t (id INT) USING delta;
INSERT INTO t VALUES (1), (2);
TRUNCATE TABLE t;
SELECT * FROM t;
@history t
