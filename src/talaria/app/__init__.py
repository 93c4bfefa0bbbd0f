"""Entry point and wiring: settings in, running system out; alone in knowing every part."""
