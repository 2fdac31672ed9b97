"""The exercise coach: an app on edgeengine, and the content of its demo. Needs edgeengine and numpy, nothing else."""
