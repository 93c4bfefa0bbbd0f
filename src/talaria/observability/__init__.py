"""State of the process: traces, OTLP export, Prometheus text, loop lag, shutdown reports."""
