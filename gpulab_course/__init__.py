"""The course for `gpulab`: exercises, predictions, quizzes and interviews, and the code that judges them."""
