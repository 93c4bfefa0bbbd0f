"""The schema, step by step: numbered files that are only ever added to."""
