"""Store contracts by subject: what each stores and guarantees, on every engine alike."""
