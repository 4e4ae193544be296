"""NVRTC in a process of its own: a call of it cannot be stopped, and may end its process."""
