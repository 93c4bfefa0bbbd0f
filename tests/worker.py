"""A worker of pytest-xdist that starts with all tests imported: ``python -m tests.worker``, instead of ``python``.

The workers of a run would each import the same tests and libraries, which takes ten seconds of CPU time. This process
asks the fork server of the run for one that has imported them, hands its streams over and waits. The forked process
runs this module too, and then executes the code that arrives at its input, as execnet's own workers do.
"""

import sys

from tests.app.warm_program import run_worker

if __name__ == "__main__":
    if len(sys.argv) > 1:  # the options for the interpreter, from execnet
        sys.exit(run_worker())
    exec(eval(sys.stdin.readline()))  # how execnet starts a process
