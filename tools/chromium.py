"""Find Chromium for the browser tests, or install Debian's where that needs no password.

Prints the program's path, or nothing and (on stderr) the reason, and always exits with 0: without a
browser those tests are skipped and say so. ``GPULAB_CHROMIUM`` names another program;
``GPULAB_NO_APT=1`` forbids the installation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

BROWSER_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
APT_PACKAGES = ("chromium", "fonts-dejavu-core")


def find() -> str | None:
    """Return the path of an installed Chromium or Chrome."""
    configured_path = os.environ.get("GPULAB_CHROMIUM")
    if configured_path:
        return shutil.which(configured_path)
    return next((path for path in map(shutil.which, BROWSER_NAMES) if path), None)


def find_apt_prefix() -> list[str] | None:
    """Return the prefix for calling apt-get without a password: [] as root, ["sudo", "-n"], or None."""
    if shutil.which("apt-get") is None or os.environ.get("GPULAB_NO_APT"):
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    return None


def install(prefix: list[str]) -> None:
    """Install Chromium with apt-get, and redirect its output to stderr."""
    print("Installing Chromium for the browser tests (apt-get) ...", file=sys.stderr, flush=True)
    apt_get = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]
    subprocess.run([*apt_get, "update"], stdout=sys.stderr, stdin=subprocess.DEVNULL, check=False)
    command = [*apt_get, "install", "--no-install-recommends", *APT_PACKAGES]
    subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, check=False)


def main() -> None:
    """Print the path of Chromium."""
    path = find()
    prefix = find_apt_prefix() if path is None else None
    if prefix is not None:
        install(prefix)
        path = find()
    if path is None:
        print("no Chromium here and no way to install it without a password", file=sys.stderr)
    print(path or "")


if __name__ == "__main__":
    main()
