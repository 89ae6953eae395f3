"""`python -m diffmb`."""

import sys

from ._cli import main

sys.exit(main())
