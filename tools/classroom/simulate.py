"""A class that is not there: a real JupyterHub and its proxy, and learners who all run notebook 00.

``python -m tools.classroom.simulate --learners 30`` starts the hub of `jupyterhub_config.py` with an
authenticator that lets all in, has every learner start a server and run notebook 00 over the proxy, as
JupyterLab does, and save it; then it kills one kernel, one server and the hub, and looks whether anything is
lost. It prints times and memory as JSON; the exit status is 1 if something failed or was lost. It needs
JupyterHub beside gpulab (``--python`` names that environment's) and configurable-http-proxy (``--proxy``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

from gpulab_course.classroom.tally import read_tally as read_tally

NOTEBOOK = "00_start_here.ipynb"
START_S = 600.0
CELL_S = 300.0
HUB_S = 120.0
_CONFIG_TEMPLATE = """
load_subconfig({config!r})
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r} + "/{{username}}"
c.Spawner.poll_interval = 2
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.ConfigurableHTTPProxy.pid_file = {homes!r} + "/proxy.pid"
# What runs goes on while the hub is away.
c.JupyterHub.cleanup_servers = c.JupyterHub.cleanup_proxy = False
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.services = [{{"name": "class", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [{{
    "name": "class", "services": ["class"],
    "scopes": ["admin:users", "admin:servers", "access:servers", "list:users"],
}}]
"""


# A learner locks a prediction, as a click in the notebook does.
_LOCK_CODE = """
import gpulab as gl
prediction = gl.predict("00-small")
prediction.seen, prediction.right = False, None
prediction.lock({value!r}, sure=True)
"""


class Hub:
    """A JupyterHub and its proxy, with their own ports and their own folder."""

    def __init__(self, folder: Path, python: str, proxy: str) -> None:
        self.folder = folder
        self.python = python
        self.token = secrets.token_hex(16)
        port, hub_port, proxy_port = _free_ports(3)
        self.url = f"http://127.0.0.1:{port}"
        self.config = folder / "config.py"
        self.config.write_text(
            _CONFIG_TEMPLATE.format(
                config=str(Path(__file__).with_name("jupyterhub_config.py")),
                homes=str(folder),
                port=port,
                hub_port=hub_port,
                proxy_port=proxy_port,
                proxy=proxy,
                token=self.token,
            )
        )
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start the hub, or start it again, and wait until it answers."""
        environment = os.environ | {
            "GPULAB_HUB_STATE": str(self.folder / "state"),
            "GPULAB_TALLY": str(self.folder / "tally"),
        }
        environment["PATH"] = os.pathsep.join((str(Path(self.python).parent), os.environ.get("PATH", "")))
        environment.pop("PYTHONPATH", None)
        with (self.folder / "hub.log").open("ab") as log:
            command = [self.python, "-m", "jupyterhub", "-f", str(self.config)]
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline_s = time.monotonic() + HUB_S
        while time.monotonic() < deadline_s:
            if self.process.poll() is not None:
                break
            try:
                await self.ask("GET", "/hub/api/users")
                return
            except Exception:  # not there yet, in one of many ways
                await asyncio.sleep(0.3)
        raise SystemExit(f"The hub did not start:\n{(self.folder / 'hub.log').read_text()[-3000:]}")

    def kill(self) -> None:
        """Kill the hub's process, but not the processes that it has started."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the hub, or through it to a learner's server, and return the answer."""
        request = HTTPRequest(
            self.url + path,
            method=method,
            headers={"Authorization": f"token {self.token}"},
            body=json.dumps(body) if body is not None else None,
            allow_nonstandard_methods=True,
            request_timeout=START_S,
        )
        response = await AsyncHTTPClient().fetch(request)
        return json.loads(response.body) if response.body else None


class Learner:
    """A learner's account, with its server and its kernel."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub = hub
        self.name = name
        self.kernel = ""
        self.home = hub.folder / name
        self.errors: list[str] = []
        self.seconds: dict[str, float] = {}

    async def learn(self) -> None:
        """Start a server, run the notebook, save it."""
        start_s = time.monotonic()
        await self.hub.ask("POST", f"/hub/api/users/{self.name}")
        await self.server()
        self.seconds["server"] = time.monotonic() - start_s
        notebook = (await self.ask_server("GET", f"/api/contents/{NOTEBOOK}"))["content"]
        session = {"path": NOTEBOOK, "name": NOTEBOOK, "type": "notebook", "kernel": {"name": "python3"}}
        self.kernel = (await self.ask_server("POST", "/api/sessions", session))["kernel"]["id"]
        await self.run([c["source"] for c in notebook["cells"] if c["cell_type"] == "code"])
        await self.run([_LOCK_CODE.format(value="NumPy" if self.name[-1] in "05" else "the GPU")])
        notebook["metadata"]["simulated"] = self.name
        contents_model = {"type": "notebook", "format": "json", "content": notebook}
        await self.ask_server("PUT", f"/api/contents/{NOTEBOOK}", contents_model)
        self.seconds["all"] = time.monotonic() - start_s

    async def server(self) -> None:
        """Start this learner's server and wait until it is ready."""
        await self.hub.ask("POST", f"/hub/api/users/{self.name}/server", {})
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            if (await self.hub.ask("GET", f"/hub/api/users/{self.name}"))["servers"].get("", {}).get("ready"):
                return
            await asyncio.sleep(0.5)
        raise TimeoutError(f"{self.name}'s server did not start.")

    async def ask_server(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to this learner's server, and return its answer."""
        return await self.hub.ask(method, f"/user/{self.name}{path}", body)

    async def run(self, cell_sources: Sequence[str]) -> list[str]:
        """Run cells over the proxy, and return the output of the last one."""
        address = f"{self.hub.url.replace('http', 'ws')}/user/{self.name}/api/kernels/{self.kernel}/channels"
        request = HTTPRequest(
            address,
            headers={"Authorization": f"token {self.hub.token}"},
            connect_timeout=START_S,
            request_timeout=START_S,
        )
        websocket = await websocket_connect(request, max_message_size=1 << 28)
        outputs: list[str] = []
        try:
            for cell_source in cell_sources:
                outputs = []
                request_id = uuid4().hex
                await websocket.write_message(json.dumps(_execute_request(request_id, cell_source)))
                async with asyncio.timeout(CELL_S):
                    while (message := await _read_type_and_text(websocket, request_id)) != ("status", "idle"):
                        message_type, output_text = message
                        outputs += [output_text] if message_type in ("stream", "execute_result") else []
                        self.errors += [output_text] if message_type == "error" else []
        finally:
            websocket.close()
        return outputs

    def processes(self) -> list[psutil.Process]:
        """Return the processes of this learner's server and kernels."""
        learner_processes = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("HOME") == str(self.home):
                    learner_processes.append(process)
            except (psutil.Error, OSError):
                continue
        return learner_processes

    def memory_mb(self) -> float:
        """Return the memory of the learner's processes in MB. Shared pages are divided among processes."""
        size_bytes = 0
        for process in self.processes():
            try:
                memory_info = process.memory_full_info()
            except (psutil.Error, OSError):
                continue
            size_bytes += getattr(memory_info, "pss", 0) or memory_info.rss
        return size_bytes / 1e6

    def is_saved(self) -> bool:
        """Return whether the notebook has its saved contents."""
        path = self.home / "gpulab-course" / NOTEBOOK
        return bool(json.loads(path.read_text())["metadata"].get("simulated") == self.name)


def _execute_request(message_id: str, cell_source: str) -> dict[str, Any]:
    header = {
        "msg_id": message_id,
        "msg_type": "execute_request",
        "username": "",
        "session": "s",
        "version": "5.3",
    }
    request_content = {
        "code": cell_source,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
    }
    return {
        "header": header,
        "parent_header": {},
        "metadata": {},
        "channel": "shell",
        "content": request_content,
    }


async def _read_type_and_text(line: Any, request_id: str) -> tuple[str, str]:
    """Return kind and text of the next message that answers a request."""
    while True:
        raw_message = await line.read_message()
        if raw_message is None:
            raise ConnectionError("The kernel's line has closed.")
        if isinstance(raw_message, bytes):
            continue  # pictures' buffers
        message = json.loads(raw_message)
        if message["parent_header"].get("msg_id") != request_id:
            continue
        message_type = message["header"]["msg_type"]
        message_content = message["content"]
        if message_type == "status":
            return message_type, message_content["execution_state"]
        if message_type == "error":
            return message_type, f"{message_content['ename']}: {message_content['evalue']}"
        return message_type, str(
            message_content.get("text") or message_content.get("data", {}).get("text/plain", "")
        )


async def inject_failures(learners: list[Learner], hub: Hub) -> list[str]:
    """Kill a kernel, a server and the hub, and return a sentence for each failure to recover."""
    failures = []
    first_learner, second_learner, third_learner = (learners * 3)[:3]
    for process in first_learner.processes():
        if "ipykernel_launcher" in " ".join(process.cmdline()):
            process.kill()
    await asyncio.sleep(5)
    if await first_learner.run(["print(6 * 7)"]) != ["42\n"]:
        failures.append("a killed kernel did not come back")
    for process in second_learner.processes():
        if "jupyterhub.singleuser" in " ".join(process.cmdline()):
            process.kill()
    await asyncio.sleep(8)  # the hub looks every 2 s
    await second_learner.server()
    if not second_learner.is_saved():
        failures.append("a killed server lost its notebook")
    hub.kill()
    if await third_learner.run(["print(6 * 7)"]) != ["42\n"]:
        failures.append("while the hub was away a kernel was not reached")
    await hub.start()
    if not (await hub.ask("GET", f"/hub/api/users/{third_learner.name}"))["servers"].get("", {}).get("ready"):
        failures.append("the new hub does not know a server that runs")
    if await third_learner.run(["print(6 * 7)"]) != ["42\n"]:
        failures.append("behind the new hub a kernel was not reached")
    failures += [f"{learner.name}'s notebook is lost" for learner in learners if not learner.is_saved()]
    tally = read_tally(hub.folder / "tally")
    locked_count = sum(tally.answer_counts["00-small"].learner_counts.values()) if tally.answer_counts else 0
    if (tally.learner_count, locked_count) != (len(learners), len(learners)):
        failures.append(f"the tally counts {tally.learner_count} learners and {locked_count} predictions")
    return failures


async def simulate(count: int, python: str, proxy: str, folder: Path) -> dict[str, Any]:
    """Simulate a class that runs a notebook, and return its times, its memory and its losses."""
    AsyncHTTPClient.configure(None, max_clients=2 * count + 10, defaults={"connect_timeout": START_S})
    hub = Hub(folder, python, proxy)
    learners = [Learner(hub, f"learner{learner_number:02}") for learner_number in range(1, count + 1)]
    for learner in learners:
        learner.home.mkdir()
    try:
        await hub.start()
        start_s = time.monotonic()
        await asyncio.gather(*(learner.learn() for learner in learners))
        learning_s = time.monotonic() - start_s
        learner_memory_mb = [learner.memory_mb() for learner in learners]
        lost_learners = await inject_failures(learners, hub)
    finally:
        _kill_processes(folder, learners)
    return {
        "learners": count,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "all_done_s": round(learning_s, 1),
        "server_ready_s": round(statistics.median(learner.seconds["server"] for learner in learners), 1),
        "memory_mb": {
            "median": round(statistics.median(learner_memory_mb)),
            "most": round(max(learner_memory_mb)),
        },
        "errors": [f"{learner.name}: {error}" for learner in learners for error in learner.errors],
        "lost": lost_learners,
    }


def _kill_processes(folder: Path, learners: list[Learner]) -> None:
    """End what was started here, found by the folder that it works in."""
    processes = [process for learner in learners for process in learner.processes()]
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.cmdline()) and process.pid != os.getpid():
                processes.append(process)
        except (psutil.Error, OSError):
            continue
    pid_file = folder / "proxy.pid"
    if pid_file.is_file() and psutil.pid_exists(pid := int(pid_file.read_text().split()[0])):
        processes.append(psutil.Process(pid))
    for process in processes:
        try:
            process.kill()
        except psutil.Error:
            continue


def _free_ports(port_count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(port_count)]
    for server_socket in sockets:
        server_socket.bind(("127.0.0.1", 0))
    ports = [int(server_socket.getsockname()[1]) for server_socket in sockets]
    for server_socket in sockets:
        server_socket.close()
    return ports


def main() -> int:
    """Print the result of the simulation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learners", type=int, default=30)
    parser.add_argument(
        "--python", default=sys.executable, help="of the environment with gpulab and JupyterHub"
    )
    parser.add_argument("--proxy", default="configurable-http-proxy")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpulab-class-", ignore_cleanup_errors=True) as folder:
        result = asyncio.run(
            simulate(options.learners, options.python, options.proxy, Path(folder).resolve())
        )
    print(json.dumps(result, indent=1))
    return 1 if result["errors"] or result["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
