"""Pictures of collective operations: the chunks of each GPU step by step, and the traffic of each port."""
