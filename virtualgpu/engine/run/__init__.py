"""Running generated code: workers, barriers, faults."""
