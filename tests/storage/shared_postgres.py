"""One PostgreSQL server for a whole run of the suite, started when the first test of any process asks for it."""

import socket
import threading
from contextlib import ExitStack

from talaria.testing.postgres import PostgresServer


class PostgresDesk:
    """Owns the server; lives in the process that the run began with, and answers at a port of loopback."""

    def __init__(self) -> None:
        self._server = PostgresServer()
        self._open = ExitStack()
        self._line = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._line.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="postgres-desk", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering and end the server, if anybody asked for one."""
        self._line.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._line.close()
        self._open.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._line.accept()
            except OSError:  # closed
                return
            with caller:
                if not self._server.port:
                    self._open.enter_context(self._server)
                caller.sendall(self._server.url.encode())


def ask_for_server(port: int) -> str:
    """Return the URL of the run's server."""
    with socket.create_connection(("127.0.0.1", port)) as line, line.makefile(encoding="utf-8") as answer:
        return answer.read()
