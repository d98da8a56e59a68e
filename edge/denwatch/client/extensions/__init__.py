"""The plug-ins that come with denwatch; `denwatch.client.plugins` loads them like any other."""
