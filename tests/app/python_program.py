"""Run a Python program that is given as an argument: ``python -m tests.app.python_program CODE``, as ``python -c``."""

import sys

if __name__ == "__main__":
    exec(compile(sys.argv[1], "<string>", "exec"), {"__name__": "__main__"})
