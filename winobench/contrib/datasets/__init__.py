"""Tasks of further data sets: one file each, as in `winobench.tasks`. ``names.txt`` lists them."""
