"""Sets of prompts and rubrics of benchmarks, and GenEval's detector.

The benchmarks are DPG-Bench, OneIG-Bench, TIIF-Bench, LongText-Bench, CVTG-2K, T2I-CompBench, WISE, T2I-ReasonBench and
UniGenBench++.
"""
