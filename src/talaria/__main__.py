"""Run Talaria with `python -m talaria`."""

import sys

from talaria.app.main import main

if __name__ == "__main__":
    sys.exit(main())
