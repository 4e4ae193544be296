"""For The Littlest JupyterHub: copy this to /opt/tljh/config/jupyterhub_config.d/gpulab.py.

First install gpulab in the learners' environment with ``sudo -E /opt/tljh/user/bin/pip install .`` in a
checkout. Then ``sudo tljh-config set limits.memory 2G`` and ``sudo tljh-config reload``.
"""

c = get_config()  # type: ignore[name-defined]  # noqa: F821

c.Spawner.cmd = ["/opt/tljh/user/bin/gpulab", "lab", "--hub"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 300
c.Spawner.environment = {"GPULAB_DEVICE": "virtual:A100", "VIRTUALGPU_THREADS": "2"}
