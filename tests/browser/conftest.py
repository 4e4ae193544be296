"""A real JupyterLab on a temporary folder, a real Chromium on it, and a line to the notebook's kernel."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.kernels import StartError, until_alive

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "artifacts" / "browser"
START_S = 180
CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
)


class Kernel:
    """A second client of the notebook's kernel: it answers what an expression's value is."""

    def __init__(self, connection_file: Path) -> None:
        from jupyter_client.blocking.client import BlockingKernelClient

        self.client = BlockingKernelClient(connection_file=str(connection_file))
        self.client.load_connection_file()
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=60)
        except RuntimeError as error:  # it died and has started again with other ports
            self.client.stop_channels()
            raise StartError("The notebook's kernel does not answer.") from error

    def value(self, expression: str) -> Any:
        """The value of an expression whose value JSON can carry."""
        reply = self.client.execute(
            "import json as _json",
            silent=True,
            reply=True,
            timeout=90,
            user_expressions={"value": f"_json.dumps({expression})"},
        )
        answer = reply["content"]["user_expressions"]["value"]
        assert answer["status"] == "ok", answer
        text = answer["data"]["text/plain"]
        return json.loads(eval(text))  # the repr of a JSON string

    def close(self) -> None:
        self.client.stop_channels()


# What JupyterLab itself throws when a kernel ends before it has answered what the page asked last.
_OF_JUPYTERLAB = re.compile(r"^(Error: )?Canceled future for \w+ message before replies were done$")


class Lab:
    """One JupyterLab server and one browser page."""

    def __init__(self, url: str, folder: Path, runtime: Path, page: Any) -> None:
        self.url = url
        self.folder = folder
        self.runtime = runtime
        self.page = page
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.note(str(error)))

    def note(self, problem: str) -> None:
        """Keep an error of the page, unless it is JupyterLab's own word about a kernel that ended."""
        if not _OF_JUPYTERLAB.match(problem):
            self.problems.append(problem)

    @contextmanager
    def notebook(self, name: str, cells: list[str]) -> Iterator[Kernel]:
        """Write a notebook, open it, run every cell; its kernel ends with the block."""
        document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        document.metadata["kernelspec"] = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
        nbformat.write(document, self.folder / name)
        before = set(self.runtime.glob("kernel-*.json"))
        self.page.goto(f"{self.url}/lab/tree/{name}?reset")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        self.page.wait_for_function("window.jupyterapp !== undefined")
        connection = self.wait_for(
            lambda: next(filter(_read, set(self.runtime.glob("kernel-*.json")) - before), None),
            what="a kernel",
        )
        kernel = until_alive(lambda: Kernel(connection))
        try:
            self.command("application:toggle-left-area") if self.page.locator(
                "#jp-left-stack"
            ).is_visible() else None
            self.command("notebook:run-all-cells")
            yield kernel
        except BaseException:
            self.picture(f"failed_{Path(name).stem}")
            raise
        finally:
            kernel.close()
            for running in self._get("/api/kernels"):
                self._get(f"/api/kernels/{running['id']}", method="DELETE")

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        """Run a command of JupyterLab as its menus do."""
        self.page.evaluate(
            "([name, args]) => window.jupyterapp.commands.execute(name, args)", [name, arguments or {}]
        )

    def slide(self, kernel: Kernel, view: str, variable: str, start: int) -> float:
        """Move a launch chart's slider from `start` to 512 threads; the median ``redraw_ms``."""
        times = []
        self.page.locator(f"{view} input[type=range]").focus()
        for threads in range(start + 32, 513, 32):
            self.page.keyboard.press("ArrowRight")
            self.page.wait_for_function(
                "([s, start]) => document.querySelector(s).textContent.startsWith(start)",
                arg=[f"{view} .gl-waves", f"{threads} threads per block"],
            )
            self.page.wait_for_timeout(120)
            times.append(kernel.value(f"{variable}.redraw_ms"))
        return statistics.median(times)

    def save(self, name: str, until: str) -> None:
        """Save the open notebook; returns once the file holds what a dotted path names."""
        path = self.folder / name

        def arrived() -> bool:
            value: Any = _read(path)
            for key in until.split("."):
                value = value.get(key, {})
            return bool(value)

        self.command("docmanager:save")
        self.wait_for(arrived, what=f"{until} in {name}")

    def picture(self, name: str, selector: str | None = None) -> Path:
        """Save what the page, or one element of it, looks like."""
        path = PICTURES / f"{name}.png"
        target = self.page.locator(selector).first if selector else self.page
        target.screenshot(path=path)
        return path

    def expect(self, kernel: Kernel, expression: str, value: Any) -> None:
        """Wait until the kernel has heard of what the page shows."""
        self.wait_for(lambda: kernel.value(expression) == value, what=f"{expression} == {value}", seconds=20)

    def wait_for(self, look: Any, what: str, seconds: float = 60) -> Any:
        """What `look` returns once that is true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = look()
            if found:
                return found
            time.sleep(0.1)
        raise TimeoutError(f"Waited {seconds} s for {what}.")

    def _get(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            body = answer.read()
        return json.loads(body) if body else None


def _read(path: Path) -> dict[str, Any]:
    """What a JSON file holds; nothing while the server writes it."""
    try:
        return dict(json.loads(path.read_text()))
    except (ValueError, OSError):
        return {}


@pytest.fixture(scope="session")
def browser(chromium_path: str) -> Iterator[Any]:
    """A Chromium of its own."""
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def open_saved(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page that a view saves, offline and without JupyterLab; errors in it fail the test."""
    pages = []
    problems = []

    def open_page(view: Any, width: int = 1280, height: int = 900, dark: bool = False) -> Any:
        path = tmp_path / f"{len(pages)}.html"
        view.save(path)
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            offline=True,
        )
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        pages.append(page)
        page.goto(f"{path.as_uri()}?notebook")
        page.wait_for_selector(".gpulab-view")
        page.wait_for_timeout(100)
        return page

    yield open_page
    for page in pages:
        page.context.close()
    assert problems == []


@pytest.fixture(scope="session")
def lab(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab with settings, data and notebooks of its own, and a page of Chromium."""
    home = tmp_path_factory.mktemp("lab")
    folder = home / "notebooks"
    runtime = home / "runtime"
    config = home / "config"
    (config / "labconfig").mkdir(parents=True)
    folder.mkdir()
    runtime.mkdir()
    # The news prompt would cover the page and asks a server outside.
    page_config = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (config / "labconfig" / "page_config.json").write_text(json.dumps(page_config))
    # As `Settings > Save Widget State Automatically`: saved views then work without a kernel.
    widgets = home / "settings" / "@jupyter-widgets" / "jupyterlab-manager"
    widgets.mkdir(parents=True)
    (widgets / "plugin.jupyterlab-settings").write_text(json.dumps({"saveState": True}))
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
        "GPULAB_HOME": str(home / "learner"),
        "PYTHONPATH": str(ROOT),
    }
    arguments = [
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port=0",
        "--ServerApp.port_retries=0",
        "--IdentityProvider.token=",
        "--PasswordIdentityProvider.hashed_password=",
        "--ServerApp.disable_check_xsrf=True",
        f"--ServerApp.root_dir={folder}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
        f"--LabApp.extra_labextensions_path={ROOT / 'gpulab' / 'data' / 'labextensions'}",
    ]
    server, url = until_alive(lambda: _serve(arguments, environment, home))
    try:
        page = browser.new_page(viewport={"width": 1280, "height": 1500})
        page.set_default_timeout(60_000)
        yield Lab(url, folder, runtime, page)
        page.close()
    finally:
        _stop(server)


def _serve(
    arguments: list[str], environment: dict[str, str], home: Path
) -> tuple[subprocess.Popen[bytes], str]:
    """A JupyterLab server that listens, and its address."""
    log = home / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *arguments],
            env=environment,
            cwd=home,
            stdout=output,
            stderr=output,
        )
    until = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < until:
        for file_ in (home / "runtime").glob("jpserver-*.json"):  # written once it listens
            if address := _read(file_).get("url"):
                return server, str(address).rstrip("/")
        time.sleep(0.2)
    _stop(server)
    raise StartError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()
