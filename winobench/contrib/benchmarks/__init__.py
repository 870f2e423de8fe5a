"""DPG-Bench, OneIG-Bench, TIIF-Bench and T2I-CompBench: their sets of prompts and their rubrics. GenEval's detector."""
