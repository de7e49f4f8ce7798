-- case: delete
CREATE TABLE t USING delta AS SELECT id, id % 3 AS p, CAST(id AS STRING) AS name FROM range(10);
DELETE FROM t WHERE id = 3;
DELETE FROM t AS x WHERE x.p = 1 AND x.id > 5;
DELETE FROM t WHERE name IS NULL;
DELETE FROM t WHERE name LIKE '8%' OR id IN (0, 2);
SELECT id FROM t;
@history t
DELETE FROM t;
SELECT count(*) FROM t;

-- case: delete with deletion vectors
CREATE TABLE t USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT id FROM range(100);
DELETE FROM t WHERE id < 10;
SELECT count(*), min(id) FROM t;
UPDATE t SET id = -id WHERE id = 50;
SELECT count(*), min(id) FROM t;
@history t

-- case: delete of a column that is not there
CREATE TABLE t (id INT) USING delta;
DELETE FROM t WHERE nope = 1;
UPDATE t SET nope = 1;
UPDATE t SET id = nope;
DELETE FROM missing WHERE id = 1;

-- case: update
CREATE TABLE t (id INT, name STRING, s STRUCT<a: INT, b: INT>) USING delta;
INSERT INTO t VALUES (1, 'a', named_struct('a', 1, 'b', 2)), (2, 'b', named_struct('a', 3, 'b', 4));
UPDATE t SET name = 'x' WHERE id = 1;
UPDATE t AS u SET u.name = concat(u.name, '!'), s.a = u.s.a + 10;
SELECT * FROM t;
UPDATE t SET id = '5' WHERE id = 2;
UPDATE t SET id = 'no number';
SELECT * FROM t;
@history t

-- case: update of a partition column
CREATE TABLE t (id INT, p INT) USING delta PARTITIONED BY (p);
INSERT INTO t VALUES (1, 1), (2, 1), (3, 2);
UPDATE t SET p = 9 WHERE id = 2;
SELECT * FROM t;
DELETE FROM t WHERE p = 1;
SELECT * FROM t;
@history t

-- case: append only
CREATE TABLE t (id INT) USING delta TBLPROPERTIES ('delta.appendOnly' = 'true');
INSERT INTO t VALUES (1);
DELETE FROM t WHERE id = 1;
UPDATE t SET id = 2;
INSERT OVERWRITE t VALUES (2);
SELECT * FROM t;

-- case: parameters
CREATE TABLE t (id INT) USING delta;
INSERT INTO t VALUES (1), (2), (3);
EXECUTE IMMEDIATE 'DELETE FROM t WHERE id = ?' USING 2;
DECLARE which INT DEFAULT 3;
DELETE FROM t WHERE id = which;
SELECT * FROM t;

-- case: merge, all clauses
CREATE TABLE t (id INT, name STRING, n INT) USING delta;
INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', 4);
CREATE TABLE s (id INT, name STRING, n INT) USING delta;
INSERT INTO s VALUES (2, 'B', 20), (3, 'C', 30), (5, 'E', 50), (6, NULL, 60);
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.n = 30 THEN DELETE WHEN MATCHED THEN UPDATE SET name = s.name, t.n = t.n + s.n WHEN NOT MATCHED AND s.name IS NOT NULL THEN INSERT (id, name, n) VALUES (s.id, s.name, s.n) WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN UPDATE SET name = 'left' WHEN NOT MATCHED BY SOURCE THEN DELETE;
SELECT * FROM t;
@history t

-- case: merge with stars, a query as source, an alias
CREATE TABLE t (id INT, name STRING) USING delta;
INSERT INTO t VALUES (1, 'a'), (2, 'b');
MERGE INTO t AS target USING (SELECT id + 1 AS id, concat('q', id) AS name FROM range(3)) AS source ON target.id = source.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
SELECT * FROM t;
WITH q AS (SELECT 9 AS id, 'nine' AS name) MERGE INTO t USING q ON t.id = q.id WHEN NOT MATCHED THEN INSERT *;
SELECT * FROM t;

-- case: merge with several matches
CREATE TABLE t (id INT, name STRING) USING delta;
INSERT INTO t VALUES (1, 'a');
MERGE INTO t USING (SELECT 1 AS id, explode(array('x', 'y')) AS name) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name;
MERGE INTO t USING (SELECT 1 AS id, explode(array('x', 'y')) AS name) s ON t.id = s.id WHEN MATCHED THEN DELETE;
SELECT * FROM t;

-- case: merge with schema evolution
CREATE TABLE t (id INT) USING delta;
INSERT INTO t VALUES (1);
MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 1 AS id, 'new' AS more UNION ALL SELECT 2, 'newer') s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
SELECT * FROM t;
MERGE INTO t USING (SELECT 1 AS id, 'x' AS more, 3 AS ignored) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *;
SELECT * FROM t;

-- case: merge that cannot be
CREATE TABLE t (id INT, name STRING) USING delta;
MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nope = 1;
MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.nope WHEN MATCHED THEN DELETE;
MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *;
MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET name = 'x';
