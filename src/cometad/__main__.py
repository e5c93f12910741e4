"""`python -m cometad` is `cometad`."""

import sys

from cometad.cli import main

if __name__ == "__main__":
    sys.exit(main())
