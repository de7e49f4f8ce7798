"""The actions of the log: their types, how commits are decoded and encoded, paths and deletion vectors."""
