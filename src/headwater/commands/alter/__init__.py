"""ALTER TABLE without SQL: columns, properties, constraints, features."""
