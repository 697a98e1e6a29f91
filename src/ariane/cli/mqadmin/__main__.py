"""`python -m ariane.cli.mqadmin`."""

import sys

from ariane.cli.mqadmin import main

if __name__ == "__main__":
    sys.exit(main())
