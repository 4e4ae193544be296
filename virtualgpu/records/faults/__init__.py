"""What became of faulty code: in a sandbox, and to one element."""
