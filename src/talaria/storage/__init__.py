"""The stores of `talaria.contracts`, on SQLite and on PostgreSQL."""
