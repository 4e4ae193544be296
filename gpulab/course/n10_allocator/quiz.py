TITLE = "The allocator"
QUESTIONS = ()
