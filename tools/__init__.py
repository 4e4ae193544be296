"""What the developers of gpulab use: benchmark, recordings, corpus, test stages. None of it is installed."""
