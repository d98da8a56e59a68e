"""The vocabularies that come with denwatch, as TOML files; `edge.client.vocabulary` loads them."""
