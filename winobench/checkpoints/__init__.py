"""Files to parameters and back: diffusers and transformers folders, hub ids, tokenizers."""
