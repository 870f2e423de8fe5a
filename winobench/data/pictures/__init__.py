"""Pictures that models have drawn: sets of prompts, and the folder of a run with its pictures."""
