"""Diagnosis of a kernel's time: by the ceilings of its device, and by cause."""
