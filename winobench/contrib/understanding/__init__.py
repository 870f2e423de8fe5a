"""`winobench understand`: matching against generation, skill by skill."""
