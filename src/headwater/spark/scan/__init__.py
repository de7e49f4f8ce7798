"""Reading tables and change feeds as DataFrames."""
