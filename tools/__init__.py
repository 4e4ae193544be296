"""Developers' tools, which are not installed: benchmarks, recordings, corpus, test stages."""
