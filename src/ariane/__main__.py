"""`python -m ariane` is the `ariane` command."""

import sys

from ariane.cli.main import main

sys.exit(main())
