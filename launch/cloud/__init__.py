"""Job files for clusters and clouds: SkyPilot, JobSets on GKE, Slurm, and Cloud TPU VMs."""
