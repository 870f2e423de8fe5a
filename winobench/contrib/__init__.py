"""Packages that plug into winobench. The core imports none of them: see docs/explanation/architecture.md."""
