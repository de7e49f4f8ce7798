"""The protocol: reading and reconciling the transaction log. Imports no Spark and does no hidden I/O."""
