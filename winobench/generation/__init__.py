"""Runs that draw pictures, and their page; what they leave behind is read by `winobench.data.pictures`."""
