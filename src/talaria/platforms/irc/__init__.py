"""IRC: channels and private messages over TLS, with SASL accounts."""
