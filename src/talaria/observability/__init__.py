"""How the process is doing: traces, OTLP export, Prometheus text, loop lag, shutdown reports."""
