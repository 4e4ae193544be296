"""Results of faulty code: in a sandbox, and the history of one element."""
