"""Run the ``gpulab`` command as ``python -m gpulab``, for systems where its script is not on the path."""

import sys

from gpulab.cli import main

if __name__ == "__main__":
    sys.exit(main())
