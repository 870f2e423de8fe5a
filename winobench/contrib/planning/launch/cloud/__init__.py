"""Job files for clusters and clouds: SkyPilot and Slurm."""
