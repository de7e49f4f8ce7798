"""Make a Spark session understand Delta: `format("delta")`, SQL, catalog names, and the modules of `delta`."""
