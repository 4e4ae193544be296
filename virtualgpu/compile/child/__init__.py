"""NVRTC in a separate process, because a call of NVRTC cannot be interrupted and can crash its process."""
