"""`winobench mcp`: runs, their results and their questions for agents, by the Model Context Protocol."""
