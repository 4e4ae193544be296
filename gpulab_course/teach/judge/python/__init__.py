"""Python answers: functions, values and device programs, judged in a process of their own."""
