"""Sets of prompts, as in `winobench.prompts`."""
