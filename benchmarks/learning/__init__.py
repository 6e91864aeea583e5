"""The proof that the policy learns: judged rewrites of the shipped tasks, and arms of training on them."""
