"""What a learner types: the functions of ``gl``, one module a subject."""
