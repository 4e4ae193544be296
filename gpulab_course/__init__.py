"""The course on top of `gpulab`: exercises, predictions, quizzes and the interview, and what judges them."""
