"""When something goes wrong: code in a process of its own, and the history of a wrong number."""
