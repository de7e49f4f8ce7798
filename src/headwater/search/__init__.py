"""The search engine: fields and analysers, splits, queries, searching one split and joining partial answers.

No Spark here: executors, the driver and programs without Spark use the same code.
"""
