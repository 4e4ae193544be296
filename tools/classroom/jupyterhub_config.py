"""A classroom on one computer: each account gets a server and copies of its own.

As root, with gpulab, JupyterHub and its proxy installed as the README says:
``jupyterhub -f tools/classroom/jupyterhub_config.py``. The settings below are those that a class may change.
"""

import os
import sys
from pathlib import Path

c = get_config()  # type: ignore[name-defined]  # noqa: F821

# Learners' kernels write summaries of their answers here, and `gpulab tally` counts them. As in /tmp,
# everybody may add a file and only its owner may change it.
tally = Path(os.environ.get("GPULAB_TALLY", "/var/lib/gpulab-tally"))
tally.mkdir(parents=True, exist_ok=True)
tally.chmod(0o1777)

# Copies the notebooks to `gpulab-course` in the learner's home folder and opens the first there.
c.Spawner.cmd = [sys.executable, "-m", "gpulab", "lab", "--hub"]
# Thirty servers that start at once take longer than one.
c.Spawner.start_timeout = c.Spawner.http_timeout = 300
c.Spawner.environment = {
    # "auto" takes a GPU that is here, and all share it; "virtual:A100" gives everybody the same figures.
    "GPULAB_DEVICE": os.environ.get("GPULAB_DEVICE", "auto"),
    "GPULAB_TALLY": str(tally),
    # Threads of a learner's virtual GPU. A kernel of the course takes milliseconds: a few are enough.
    "VIRTUALGPU_THREADS": os.environ.get("VIRTUALGPU_THREADS", "2"),
    # Kernels that `python -m tools.classroom.compile_ahead` compiled for all learners.
    "GPULAB_CACHE_SHARED": os.environ.get("GPULAB_CACHE_SHARED", "/var/cache/gpulab"),
}
# Everybody with an account may log in. To name them instead: c.Authenticator.allowed_users = {"ada", "alan"}.
c.Authenticator.allow_all = True
# Passwords travel here: add c.JupyterHub.ssl_key and ssl_cert, or stay behind a server that has them.
c.JupyterHub.bind_url = "http://:8000"

state = Path(os.environ.get("GPULAB_HUB_STATE", "/var/lib/gpulab-hub"))
state.mkdir(parents=True, exist_ok=True, mode=0o700)
c.JupyterHub.db_url = f"sqlite:///{state / 'jupyterhub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(state / "cookie_secret")
