"""The turn loop, tool dispatch, context window and compaction; knows no place and no database."""
