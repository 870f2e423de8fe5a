"""`winobench view --bundle`: the viewer as files, for any web host."""
