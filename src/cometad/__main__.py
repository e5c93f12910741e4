"""`python -m cometad` runs the command line."""

import sys

from cometad.cli import main

if __name__ == "__main__":
    sys.exit(main())
