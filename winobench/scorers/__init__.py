"""Scorers: how well does a text fit an image?"""
