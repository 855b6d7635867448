"""`python -m rematc`: the command `remat-compile`."""

from __future__ import annotations

import sys

from rematc.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
