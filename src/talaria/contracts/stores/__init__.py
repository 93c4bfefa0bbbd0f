"""The stores by subject: what each keeps and promises, on every engine alike."""
