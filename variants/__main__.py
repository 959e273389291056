"""``python -m variants``: the command line."""

import sys

from variants.cli import main

if __name__ == "__main__":
    sys.exit(main())
