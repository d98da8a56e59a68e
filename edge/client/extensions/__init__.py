"""The plug-ins that come with denwatch; `edge.client.plugins` loads them like any other."""
