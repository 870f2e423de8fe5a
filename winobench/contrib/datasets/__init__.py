"""Tasks of further data sets: one file each, as in `winobench.tasks`. ``names.txt`` lists them.

`rating_measures` are the metrics of tasks on people's ratings, `generators` a section of the report on Self-Bench.
"""
