"""Start other processes that run functions, limit their resources, communicate with them and end them."""
