"""Changing what a table is: its columns, properties, constraints, clustering and protocol (what SQL calls ALTER TABLE).

Each function takes a snapshot, makes one transaction of it and commits, under the operation name that Delta users know
from a table's history. What must look at rows is done by Spark (`headwater.spark`), everything else needs the log only.
"""
