"""Models behind an API that make images: `winobench generate --model=openai:MODEL`."""
