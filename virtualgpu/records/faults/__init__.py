"""Records of faulty code: a run in a sandbox, and the history of one array element."""
