"""The stores by subject, in statements that every engine understands."""
