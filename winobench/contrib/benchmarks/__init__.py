"""Prompts and rubrics of DPG-Bench, OneIG-Bench, TIIF-Bench, LongText-Bench, CVTG-2K and T2I-CompBench.

GenEval's detector.
"""
