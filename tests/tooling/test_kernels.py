"""A Jupyter kernel whose port another program has taken is started again."""

from __future__ import annotations

import socket
from typing import Any, ClassVar

import pytest

from tests.kernels import until_alive

jupyter = pytest.importorskip("jupyter_client.manager")
nbval_kernel = pytest.importorskip("nbval.kernel")


class OnTakenPort(jupyter.KernelManager):  # type: ignore[misc, name-defined]
    """Gives its first kernel a port that is in use."""

    taken: ClassVar[list[int]] = []

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.taken:
            self.cache_ports = False
            self.shell_port = self.taken.pop()


def test_a_taken_port_costs_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nbval_kernel, "KernelManager", OnTakenPort)
    attempts = []

    def start() -> Any:
        attempts.append(1)
        return nbval_kernel.RunningKernel(nbval_kernel.CURRENT_ENV_KERNEL_NAME)

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(OnTakenPort, "taken", [server.getsockname()[1]])
        kernel = until_alive(start)
        try:
            assert len(attempts) == 2
            assert kernel.is_alive()
        finally:
            kernel.stop()


def test_other_errors_are_not_hidden() -> None:
    def fail() -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        until_alive(fail)
