"""NVRTC in a separate process, because a call of it cannot be stopped and may end its process."""
