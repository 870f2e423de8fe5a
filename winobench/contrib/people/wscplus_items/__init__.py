"""WSC+ items written by language models: prompts, candidates, checks, two annotators' judgement, filtering."""
