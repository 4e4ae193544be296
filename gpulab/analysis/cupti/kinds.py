"""Numbers of CUPTI's record kinds and calls (cupti_activity.h, cupti_callbacks.h)."""

# CUpti_ActivityKind
MEMCPY = 1
MEMSET = 2
DRIVER = 4
RUNTIME = 5
CONCURRENT_KERNEL = 10
MARKER = 12
MARKER_DATA = 13
MEMCPY2 = 22
CUDA_EVENT = 36
STREAM = 37
SYNCHRONIZATION = 38
# since CUDA 13.4
GRAPH_HOST_NODE = 56
HOST_LAUNCH = 58
# CUpti_CallbackDomain
DRIVER_API = 1
RUNTIME_API = 2
