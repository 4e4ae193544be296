"""Other processes that run a function: how they are started, limited, spoken to and ended."""
