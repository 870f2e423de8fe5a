"""What a program will take on accelerators that are not at hand: compiled ahead of time, and read."""
