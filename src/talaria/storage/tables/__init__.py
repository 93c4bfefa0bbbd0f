"""Store tables by subject, in SQL that every engine understands."""
