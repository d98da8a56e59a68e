"""The vocabularies that come with denwatch, as TOML files; `client.vocabulary` loads them."""
