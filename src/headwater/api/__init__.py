"""What users import: `DeltaTable`, `SearchTable`, the builders, and `open_log`. It only delegates to the commands."""
