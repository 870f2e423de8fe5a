"""The flow of an evaluation: plan what must be scored, score it, record it, summarise it."""
