"""The sub-commands of `denwatch`, one file each; `edge.cli` imports the one that is called."""
