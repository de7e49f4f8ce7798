"""DELETE, UPDATE and MERGE: commands that change rows of a table, each in one commit."""
