"""Memory allocators as models: what a pool does with a trace of requests, without a device."""
