"""What a report says, a module a section; ``shared`` has what they are made of.

On the page they come in the order ``what_was_run``, ``tasks``, ``radar``, ``differences``, ``clevr``, ``bias``,
``overlap``, ``samples``, ``timesteps``, ``gallery``; of text benchmarks ``what_was_run``, ``tasks``, ``radar``,
``differences``, ``winoviz``, ``wscplus``, ``overlap``, ``questions``.
"""
