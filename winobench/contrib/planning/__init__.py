"""Memory, time and cost of programs on accelerators you do not have, from their compilers."""
