"""Operations on the log and the store alone, without Spark: create, alter, vacuum, restore, clone."""
