"""Sets of prompts: files, named sets and the grammar of our scenes."""
