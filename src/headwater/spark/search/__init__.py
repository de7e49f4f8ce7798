"""Search tables on Spark: writing splits, scanning and searching them, and looking after them."""
