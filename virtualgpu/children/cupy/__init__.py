"""Replacement of ``cupy`` in a process that a program on the virtual GPU has started.

`virtualgpu.aliases` puts the parent folder on ``PYTHONPATH``. This module replaces itself by `virtualgpu.cp`.
"""

import sys
from pathlib import Path

try:
    import virtualgpu
except ImportError:  # virtualgpu is not installed but imported from a folder
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    import virtualgpu

del sys.modules[__name__]
virtualgpu.as_cupy()
