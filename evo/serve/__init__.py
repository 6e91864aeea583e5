"""`kernevo serve`: our evaluator behind HTTP, for trainers that ask an environment what a kernel is worth."""
