"""Why a kernel is as slow as it is: under the ceilings of its device, and by cause."""
