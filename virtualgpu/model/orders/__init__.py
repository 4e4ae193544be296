"""Other orders in which CUDA may run the work of streams; running them reveals missing waits."""
