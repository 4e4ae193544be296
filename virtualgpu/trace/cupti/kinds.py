"""Kinds of CUPTI's records and calls (cupti_activity.h, cupti_callbacks.h)."""

# CUpti_ActivityKind
MEMCPY, MEMSET, DRIVER, RUNTIME, CONCURRENT_KERNEL = 1, 2, 4, 5, 10
MARKER, MARKER_DATA, MEMCPY2, CUDA_EVENT, STREAM, SYNCHRONIZATION = 12, 13, 22, 36, 37, 38
GRAPH_HOST_NODE, HOST_LAUNCH = 56, 58  # since CUDA 13.4
# CUpti_CallbackDomain
DRIVER_API, RUNTIME_API = 1, 2
