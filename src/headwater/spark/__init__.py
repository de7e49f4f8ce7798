"""What needs PySpark: sessions, scans, and the commands that read and write rows."""
