"""The ``gpulab`` command as ``python -m gpulab``, for systems whose path does not contain its script."""

import sys

from gpulab.cli import main

if __name__ == "__main__":
    sys.exit(main())
