"""`python -m denwatch.cli`: the same as the command `denwatch`."""

import sys

from denwatch.cli import main

sys.exit(main())
