"""What a run tells: counters, traces, observers."""
